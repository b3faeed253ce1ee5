"""`python -m benchmarks.peers`: prints the comparison."""

import sys

from benchmarks.peers import comparison

sys.exit(comparison.main())
