"""Python runs this when it starts: PySpark is imported as it is installed, with its compiled code.

Spark puts its archive of PySpark before all else on the path of its Python processes, and each of them then compiles
what it imports, for twice the processor time. Spark waits 10 seconds for the process that reads a stream, and no
setting makes it wait longer: on a busy machine the process came too late.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("pyspark.zip", "-src.zip"))]
