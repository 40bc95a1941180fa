"""``python -m jupyter_infer`` is ``jupyter infer``."""

import sys

from jupyter_infer.cli import main

sys.exit(main())
