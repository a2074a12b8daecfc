"""source: a pin becomes one pristine commit whose identity has been checked."""

from builder.source.pristine import Origin, SourceResult, fetch_source

__all__ = ["Origin", "SourceResult", "fetch_source"]
