"""What a processor can do, as the system tells it."""

import pytest

from pyramid_bert import cores


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Lets the system tell this about its processor; None for nothing."""

    def tell(text):
        file = tmp_path / "cpuinfo"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        monkeypatch.setattr(cores, "CPUINFO", file)
        cores.instructions.cache_clear()
        return cores.instructions()

    yield tell
    cores.instructions.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512_vnni amx_bf16 avx2\nflags\t\t: fpu", ("amx_bf16", "avx512_vnni")),
        ("flags : fpu avx2", ()),
        ("processor : 0\nFeatures : fp asimd", None),  # not of x86
        (None, None),
    ],
)
def test_instructions(told, text, expected):
    assert told(text) == expected


@pytest.mark.parametrize(
    ("found", "expected"), [(("avx_vnni",), True), (("amx_int8",), True), (("avx512_bf16",), False), ((), False)]
)
def test_vnni(found, expected):
    assert cores.has_vnni(found) is expected
