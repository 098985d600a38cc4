"""What a row of the table of families has to hold, for those who write one. Needs no pytest.

from pyramid_bert.testing import check_family

check_family(MY_FAMILY)
"""

from .checks import CHECKS, check_family
from .models import batch_of, tiny_model

__all__ = ["CHECKS", "batch_of", "check_family", "tiny_model"]
