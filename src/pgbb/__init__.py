"""pgbb: private posteriors by the Private Generative Bayesian Bootstrap."""

from pgbb.errors import InvalidValue, NotCertifiable, PgbbError, PgbbWarning

__version__ = "0.1.0"

__all__ = ["InvalidValue", "NotCertifiable", "PgbbError", "PgbbWarning", "__version__"]
