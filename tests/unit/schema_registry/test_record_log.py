from tistream_schema.record_log import BLOCK_LINES, RecordLog


def test_lines_come_back_by_number() -> None:
    log = RecordLog()
    lines = [f'{{"n":{number}}}'.encode() for number in range(2 * BLOCK_LINES + 7)]
    log.append(lines[:10])
    log.append(lines[10 : BLOCK_LINES + 3])
    log.append(lines[BLOCK_LINES + 3 :])
    assert len(log) == len(lines)
    for after in (0, 1, BLOCK_LINES - 1, BLOCK_LINES, 2 * BLOCK_LINES, 2 * BLOCK_LINES + 6):
        found = log.read(after)
        assert found
        assert found == lines[after : after + len(found)]
    assert log.read(len(lines)) == []
    assert log.read(10 * BLOCK_LINES) == []


def test_reading_on_and_on_gives_everything_once() -> None:
    log = RecordLog()
    lines = [str(number).encode() for number in range(3 * BLOCK_LINES)]
    log.append(lines)
    found: list[bytes] = []
    while page := log.read(len(found)):
        found += page
    assert found == lines
