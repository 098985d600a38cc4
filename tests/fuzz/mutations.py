"""Structured damage to files: what a careless copy, a failing disk or a hostile stranger may leave in a folder.

Every mutation is a function of (bytes, random.Random) and is repeatable from its seed.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

# Values that no reader expects where it reads one.
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 512, 1 << 20, 1 << 31, 1 << 62, 10**9, -(10**9), 10**400, 0.5, 1e-300, 1e300,
    math.nan, math.inf, -math.inf, "", " ", "x", "coreset", "bert", "null", "__import__('os')", "../../etc/passwd",
    "/dev/zero", "a" * 10_000, "\x00", "\x1b[31m", "\ud800", "𝕏", [], [[]], [1], ["a"], [None] * 50, list(range(500)),
    {}, {"a": {}}, {"0": 0},
    {"": None}, {"kind": "exponential"}, {"kind": []},
]  # fmt: skip


# ---- any file ----


def truncate(data: bytes, random: Random) -> bytes:
    """The beginning of the file."""
    return data[: random.randrange(len(data) + 1)]


def flip(data: bytes, random: Random) -> bytes:
    """Some other bytes."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8, 64])):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def insert(data: bytes, random: Random) -> bytes:
    """Some bytes more."""
    place = random.randrange(len(data) + 1)
    more = random.choice(
        [b"\x00", b"\n", b'"', b"{", b"[" * 5000, b"\xff\xfe", b"\r\n", b"\t", b",", b"\xed\xa0\x80", b"\x1b[2J"]
    )
    return data[:place] + more + data[place:]


def repeat(data: bytes, random: Random) -> bytes:
    """A piece of the file twice."""
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.randrange(1, 200))
    return data[:end] + data[start:]


def replace_all(data: bytes, random: Random) -> bytes:
    """Another file altogether."""
    return random.choice(
        [
            b"",
            b"\x00" * 100,
            b"{}",
            b"[]",
            b"null",
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b"\x80\x04N.",
            b"PK\x03\x04",
            b"\xff" * 64,
        ]
    )


BYTES: list[Mutation] = [truncate, flip, insert, repeat, replace_all]


# ---- JSON ----


def _places(data: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) in JSON data."""
    if isinstance(data, dict | list):
        for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
            found.append((data, key))
            _places(value, found)
    return found


def json_value(data: bytes, random: Random) -> bytes:
    """A hostile value in some place, a key less, a key more, or a key moved."""
    try:
        whole = json.loads(data)
    except ValueError:
        return flip(data, random)
    places = _places(whole, [])
    # Long lists, such as a vocabulary, would drown the others.
    places = [place for place in places if not (isinstance(place[0], dict | list) and len(place[0]) > 60)] or places
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        if not places:
            return json.dumps(random.choice(HOSTILE)).encode("utf-8", "surrogatepass")
        container, key = random.choice(places)
        kind = random.randrange(6)
        try:
            if kind == 0:
                del container[key]
            elif kind == 1 and isinstance(container, dict):
                container[
                    random.choice(["auto_map", "quantization_config", "x", "format", "pyramid", "transformers_weights"])
                ] = random.choice(HOSTILE)
            elif kind == 2:
                old = container[key]
                if isinstance(old, int | float) and not isinstance(old, bool):
                    container[key] = random.choice(
                        [old + 1, old - 1, old * 2, -old, old * 10**6, str(old), [old], float(old)]
                    )
                else:
                    container[key] = [old]
            else:
                container[key] = random.choice(HOSTILE)
        except (KeyError, IndexError, OverflowError):
            continue
    return json.dumps(whole).encode("utf-8", "surrogatepass")


JSON: list[Mutation] = [json_value] * 8 + BYTES


# ---- safetensors: eight bytes of length, a JSON header, the tensors ----


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _joined(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + body


def header_value(data: bytes, random: Random) -> bytes:
    """A hostile value in the header."""
    header, body = _parts(data)
    return _joined(
        json.loads(json_value(json.dumps(header).encode(), random).decode("utf-8", "surrogatepass")) or {}, body
    )


def header_length(data: bytes, random: Random) -> bytes:
    """Another length of the header."""
    length = random.choice([0, 1, 8, 1 << 20, 1 << 40, (1 << 64) - 1])
    return struct.pack("<Q", length) + data[8:]


def rename_tensor(data: bytes, random: Random) -> bytes:
    """A tensor under another name: one is missing, one is not known."""
    header, body = _parts(data)
    name = random.choice([key for key in header if key != "__metadata__"])
    header[name + random.choice(["2", ".bias", ".weight", "\x00"])] = header.pop(name)
    return _joined(header, body)


def drop_tensors(data: bytes, random: Random) -> bytes:
    """Some tensors less, of the same part or of any; the others stay where they are."""
    from safetensors.torch import load, save

    tensors = load(data)
    part = random.choice(
        ["embeddings", "layer.0", "layer.1", "pooler", "classifier", "query", "LayerNorm", random.choice(list(tensors))]
    )
    return save({name: tensor for name, tensor in tensors.items() if part not in name} or tensors)


def poison_tensor(data: bytes, random: Random) -> bytes:
    """NaN or infinity in a tensor."""
    from safetensors.torch import load, save

    tensors = load(data)
    tensor = tensors[random.choice(list(tensors))]
    if tensor.is_floating_point() and tensor.numel():
        tensor.view(-1)[random.randrange(tensor.numel())] = random.choice([math.nan, math.inf, -math.inf])
    return save(tensors)


def reshape_tensor(data: bytes, random: Random) -> bytes:
    """A tensor of another shape or kind."""
    import torch
    from safetensors.torch import load, save

    tensors = load(data)
    name = random.choice(list(tensors))
    tensor = tensors[name]
    choices = [
        tensor[:1],
        tensor.flatten(),
        tensor[None],
        torch.cat([tensor, tensor]),
        tensor.to(torch.int8),
        tensor.double(),
    ]
    tensors[name] = random.choice(choices).contiguous()
    return save(tensors)


def more_tensors(data: bytes, random: Random) -> bytes:
    """A layer more than the config says."""
    from safetensors.torch import load, save

    tensors = load(data)
    more = {
        name.replace("layer.0.", "layer.9."): tensor.clone() for name, tensor in tensors.items() if "layer.0." in name
    }
    return save({**tensors, **more})


SAFETENSORS: list[Mutation] = [
    header_value, header_value, header_length, rename_tensor, drop_tensors, drop_tensors, poison_tensor, reshape_tensor,
    more_tensors, *BYTES,
]  # fmt: skip


# ---- rows of text ----


def gzipped(mutation: Mutation) -> Mutation:
    """The same damage inside of a gzip file."""
    return lambda data, random: gzip.compress(mutation(gzip.decompress(data), random), mtime=0)


def line_value(data: bytes, random: Random) -> bytes:
    """A hostile value in one line of JSON Lines."""
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    lines[place] = json_value(lines[place], random)
    return b"\n".join(lines)


def line_moved(data: bytes, random: Random) -> bytes:
    """A line less, twice, empty, or in another place."""
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    line = lines.pop(place)
    kind = random.randrange(4)
    if kind == 1:
        lines[place:place] = [line, line]
    elif kind == 2:
        lines.insert(place, b"")
    elif kind == 3:
        lines.insert(random.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def field_value(data: bytes, random: Random) -> bytes:
    """A hostile field in one line of a table."""
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    separator = b"\t" if b"\t" in data else b","
    fields = lines[place].split(separator)
    more = [
        b"",
        b'"',
        b'"a,b"',
        b"\x00",
        b"nan",
        b"1e999",
        b"a" * 200_000,
        b"\xff",
        b"\xed\xa0\x80",
        b"=1+1",
        "𝕏\u2028\u202e".encode(),
        b"\r",
    ]
    fields[random.randrange(len(fields))] = random.choice(more)
    if random.random() < 0.3:
        fields.insert(random.randrange(len(fields) + 1), random.choice(more))
    lines[place] = separator.join(fields)
    return b"\n".join(lines)


TABLE: list[Mutation] = [field_value] * 3 + [line_moved] + BYTES
LINES: list[Mutation] = [line_value] * 3 + [line_moved] + BYTES
ZIPPED: list[Mutation] = [gzipped(mutation) for mutation in TABLE] + BYTES
