"""Loads written.pkl, which needle's own pickle writer made, with this NumPy (and ml_dtypes) and checks every value."""
import pathlib, pickle, warnings

import ml_dtypes
import numpy as np

warnings.simplefilter("error")
value = pickle.loads((pathlib.Path(__file__).parent / "written.pkl").read_bytes())
for text, number in value.items():
    if text.lstrip("-").isdigit():
        assert type(number) is int and number == int(text), text
assert value["pi"] == 3.14159 and value["none"] is None and value["yes"] is True
assert value["tuple"] == (3, 1, 2, 70000) and value["nothing"] == () and value["long"] == "y" * 1000
for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "uint32", "bool", "bfloat16"):
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    for start in (0, 1):
        array = value[f"{name}{start}"]
        assert type(array) is np.ndarray and array.dtype == dtype and array.shape == (2, 3), name
        assert array.tobytes() == bytes(range(start, start + array.nbytes)), name
print("numpy", np.__version__, "loads written.pkl:", len(value), "values")
