"""A release as one self-contained page that draws in the browser: `pgbb.report.page`, and the assets it inlines."""

from pgbb.report.page import LARGEST, page

__all__ = ["LARGEST", "page"]
