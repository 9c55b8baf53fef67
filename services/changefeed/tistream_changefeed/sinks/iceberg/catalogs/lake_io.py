"""The access to the files of a feed's tables, which is limited to one place."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from tistream.errors import TargetNotAllowed

_WAREHOUSE, _STORAGE = "warehouse", "s3."
_SAME = {"s3a": "s3", "s3n": "s3"}


class LakeIO(PyArrowFileIO):
    """Reads, writes and deletes files at or below one place. `properties`: those that the feed gives to its catalog,
    never those of an answer or of a table; `warehouse` is the place. Each call raises TargetNotAllowed for a file
    elsewhere."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        used = {name: value for name, value in properties.items() if name.startswith(_STORAGE) or name == _WAREHOUSE}
        super().__init__(used)
        self._place: str = used[_WAREHOUSE]

    def below(self, place: str) -> LakeIO:
        """The same access, limited to a place in this one."""
        self.check(place)
        found = LakeIO({**self.properties, _WAREHOUSE: place})
        found.fs_by_scheme = self.fs_by_scheme
        return found

    def check(self, location: str) -> None:
        """Check that a file or directory lies at or below the place. Raises TargetNotAllowed."""
        root, found = (_split(one, self.properties) for one in (self._place.rstrip("/"), location))
        if found[: len(root)] != root or {".", ".."} & set(found):
            raise TargetNotAllowed(
                f"the table names {location[:200]!r}, which is not below {self._place}: files elsewhere are neither "
                "read nor deleted. Let the table name files below its own location only, and give the changefeed a "
                "warehouse that has the locations of its tables"
            )

    def new_input(self, location: str) -> PyArrowFile:
        """Implement FileIO.new_input."""
        self.check(location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Implement FileIO.new_output."""
        self.check(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Implement FileIO.delete."""
        self.check(location if isinstance(location, str) else location.location)
        super().delete(location)


def _split(location: str, properties: Mapping[str, str]) -> list[str]:
    """The scheme, the host and the steps of the path that are opened for a location."""
    scheme, host, path = PyArrowFileIO.parse_location(location, dict(properties))
    return [_SAME.get(scheme, scheme), host, *path.split("/")]
