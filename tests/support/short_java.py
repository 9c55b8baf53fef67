"""Options of Java for JVMs that live for seconds: most of what they would do is to compile themselves.

Without the optimizing compiler a Spark cluster of four JVMs takes a third of the processor time. What they compute is
the same. In the soak they run as in production.
"""

from __future__ import annotations

from support.effort import FULL

VARIABLE = "JAVA_TOOL_OPTIONS"  # every JVM reads it
OPTIONS = "" if FULL else "-XX:TieredStopAtLevel=1 -XX:CICompilerCount=1 -XX:+UseSerialGC"
