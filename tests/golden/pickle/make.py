"""Writes the golden pickles of this folder: one dict, in every protocol, by the NumPy that runs it.

Run it twice, in environments with numpy 1.26 and numpy 2 (both with ml_dtypes):
    python make.py <folder>
It also writes config_reduce.pkl and config_newobj_ex.pkl: a config object pickled in ways other than the usual one.
"""
import pathlib, pickle, sys, types

import ml_dtypes
import numpy as np

folder = pathlib.Path(sys.argv[1])
major = np.__version__.split(".")[0]
counting = np.arange(24).reshape(2, 3, 4)
value = {
    "none": None, "true": True, "false": False,
    "ints": [0, 255, 256, 65535, 65536, -1, -2**31, 2**31, 2**63 - 1, -2**63, 2**63, -2**70, 10**30],
    "floats": (0.5, -1e300, float("inf")), "text": "nädel 針 \U0001f9f5", "long_text": "x" * 300,
    "bytes": bytes(range(256)), "no_bytes": b"", "bytearray": bytearray(b"needle"),
    "nested": {"list": [[], (), {}, [1]], "twice": ("same", "same")},
    "f2": counting.astype("f2"), "f4": counting.astype("f4") / 7, "f8": counting / 7,
    "bf16": counting.astype(ml_dtypes.bfloat16),
    "i1": np.array([-128, 127], "i1"), "i2": np.array([-32768, 32767], "i2"), "i4": counting.astype("i4"),
    "i8": counting.astype("i8"), "u1": np.array([0, 255], "u1"), "u2": np.array([65535], "u2"),
    "u4": np.array([2**32 - 1], "u4"), "u8": np.array([2**62], "u8"), "bools": np.array([True, False, True]),
    "fortran": np.asfortranarray(counting.astype("f4")), "axes": counting.astype("f4").transpose(0, 2, 1),
    "fortran_i2": np.asfortranarray(counting[0].astype("i2")),
    "slice": counting.astype("f4")[:, ::2, 1:3], "zero_d": np.array(2.5, "f4"), "empty": np.zeros((0, 4), "f4"),
    "scalar_f4": np.float32(1.5), "scalar_f8": np.float64(0.1), "scalar_i8": np.int64(-7), "scalar_bool": np.bool_(True),
    "big_endian_free": np.arange(3, dtype="<i4"),
}
for protocol in range(2, 6):
    (folder / f"numpy{major}_p{protocol}.pkl").write_bytes(pickle.dumps(value, protocol))

# The config class under upstream's name, as a plain class of ours.
module = types.ModuleType("needle.model.architecture")


class TransformerConfig:
    def __init__(self, **fields):
        self.__dict__.update(fields)


TransformerConfig.__module__, TransformerConfig.__qualname__ = module.__name__, "TransformerConfig"
module.TransformerConfig = TransformerConfig
for name in ("needle", "needle.model"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[module.__name__] = module
fields = {"d_model": 32, "engram_layers": (1,)}


def dump(name, reduce, protocol):
    TransformerConfig.__reduce_ex__ = reduce
    (folder / name).write_bytes(pickle.dumps(TransformerConfig(**fields), protocol))
    del TransformerConfig.__reduce_ex__


(folder / "config_p2.pkl").write_bytes(pickle.dumps(TransformerConfig(**fields), 2))
import copyreg

dump("config_reconstructor.pkl", lambda self, p: (copyreg._reconstructor, (TransformerConfig, object, None), fields), 2)
dump("config_reduce.pkl", lambda self, p: (TransformerConfig, (), fields), 4)
dump("config_newobj.pkl", lambda self, p: (copyreg.__newobj__, (TransformerConfig,), (None, fields)), 4)
dump("config_newobj_ex.pkl", lambda self, p: (copyreg.__newobj_ex__, (TransformerConfig, (), fields)), 4)

bad = {
    "big_endian": np.arange(3, dtype=">f4"), "objects": np.array([None, {}], object), "text_array": np.array(["a"]),
    "records": np.zeros(2, [("a", "f4")]), "set": {1, 2}, "function": len, "complex": np.zeros(2, "c8"),
    "datetime": np.zeros(1, "M8[s]"),
}
if major == "2":
    for name, thing in bad.items():
        (folder / f"bad_{name}.pkl").write_bytes(pickle.dumps({"x": thing}, 4))
