"""C source of the extension module: Python's arguments to those of numba's compiled functions.

numba's calling convention (stable since its beginnings; numba/core/callconv.py): status
f(result *, exception **, arguments...), where an array is seven or more words (meminfo, parent,
items, item size, data, shape..., strides...), a boolean one byte, and status 0 or -2 (None) is
success. Kernels only use data, shape and strides; meminfo and parent are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .types import Kind, Signature

_CODES = {"int64": "l", "uint64": "L", "int32": "i", "uint8": "B", "float64": "d", "boolean": "?"}
_C_TYPES = {"int64": "int64_t", "uint64": "uint64_t", "float64": "double", "boolean": "uint8_t"}


@dataclass(frozen=True)
class Exported:
    """A kernel's name, and for each signature the symbol of its machine code."""

    name: str
    signatures: tuple[Signature, ...]
    symbols: tuple[str, ...]


def source(module: str, kernels: Sequence[Exported]) -> str:
    """The whole C file."""
    parts = [_PRELUDE]
    methods = []
    for kernel in kernels:
        pairs = list(zip(kernel.signatures, kernel.symbols, strict=True))
        for index, (signature, symbol) in enumerate(pairs):
            parts.append(_caller(f"call_{kernel.name}_{index}", signature, symbol))
        rows = ",\n  ".join(
            f'{{"{_pattern(s)}", call_{kernel.name}_{i}}}' for i, (s, _) in enumerate(pairs)
        )
        parts.append(
            f"static const Overload overloads_{kernel.name}[] = {{\n  {rows}\n}};\n"
            f"static PyObject *py_{kernel.name}(PyObject *self, PyObject *const *args, "
            f'Py_ssize_t count) {{\n  return dispatch("{kernel.name}", '
            f"overloads_{kernel.name}, {len(pairs)}, args, count);\n}}\n"
        )
        methods.append(
            f'{{"{kernel.name}", (PyCFunction)(void (*)(void))py_{kernel.name}, '
            "METH_FASTCALL, NULL}"
        )
    table = ",\n  ".join([*methods, "{NULL, NULL, 0, NULL}"])
    parts.append(
        f"static PyMethodDef methods[] = {{\n  {table}\n}};\n"
        "static struct PyModuleDef module = "
        f'{{PyModuleDef_HEAD_INIT, "{module}", NULL, -1, methods}};\n'
        f"PyMODINIT_FUNC PyInit_{module}(void) {{ return PyModule_Create(&module); }}\n"
    )
    return "\n".join(parts)


def _pattern(signature: Signature) -> str:
    """Three characters per argument: element type, `0` scalar, `r` read or `w` written array, and
    the number of dimensions."""
    marks = []
    for kind in signature.arguments:
        access = "0" if not kind.ndim else "r" if kind.readonly else "w"
        marks.append(f"{_CODES[kind.name]}{access}{kind.ndim}")
    return "".join(marks)


def _caller(name: str, signature: Signature, symbol: str) -> str:
    """A C function from parsed arguments to the machine code and its result back."""
    declared, passed = ["void *", "void **"], ["&result", "&problem"]
    for position, kind in enumerate(signature.arguments):
        one_declared, one_passed = _argument(position, kind)
        declared += one_declared
        passed += one_passed
    kind = signature.result
    result = "int64_t" if kind.name == "void" else _C_TYPES[kind.name]
    back = {
        "void": "",
        "boolean": "  *out = PyBool_FromLong(result);\n",
        "int64": "  *out = PyLong_FromLongLong(result);\n",
        "uint64": "  *out = PyLong_FromUnsignedLongLong(result);\n",
        "float64": "  *out = PyFloat_FromDouble(result);\n",
    }[kind.name]
    return (
        f"extern int32_t {symbol}({', '.join(declared)});\n"
        f"static int {name}(Argument *a, PyObject **out) {{\n"
        f"  {result} result = 0; void *problem = NULL; int32_t status;\n"
        f"  Py_BEGIN_ALLOW_THREADS\n  status = {symbol}({', '.join(passed)});\n"
        f"  Py_END_ALLOW_THREADS\n  if (status != 0 && status != -2) return -1;\n{back}"
        "  return 0;\n}\n"
    )


def _argument(position: int, kind: Kind) -> tuple[list[str], list[str]]:
    """C types and values of one argument."""
    one = f"a[{position}]"
    if not kind.ndim:
        field = {"float64": "real", "uint64": "natural"}.get(kind.name, "whole")
        return [_C_TYPES[kind.name]], [f"({_C_TYPES[kind.name]}){one}.{field}"]
    extents = [f"{one}.buffer.shape[{d}]" for d in range(kind.ndim)]
    strides = [f"{one}.buffer.strides[{d}]" for d in range(kind.ndim)]
    items = " * ".join(extents)
    types = ["void *", "void *", "int64_t", "int64_t", "void *", *["int64_t"] * (2 * kind.ndim)]
    values = ["NULL", "NULL", items, f"{one}.buffer.itemsize", f"{one}.buffer.buf"]
    return types, [*values, *extents, *strides]


_PRELUDE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST 32

/* Arrays come without meminfo, so nobody counts references: there is nothing to destroy. */
void NRT_MemInfo_call_dtor(void *info) { (void)info; }

typedef struct {
  Py_buffer buffer;
  int64_t whole;
  uint64_t natural;
  double real;
  char code;      /* of the buffer's elements; 0 for a scalar */
} Argument;

typedef struct {
  const char *pattern;
  int (*call)(Argument *, PyObject **);
} Overload;

static char element(const Py_buffer *buffer) {
  const char *format = buffer->format ? buffer->format : "B";
  if (*format == '@' || *format == '=' || *format == '<') format++;
  if (format[1] != 0) return 'x';
  if (*format == 'q') return 'l';
  if (*format == 'Q') return 'L';
  return *format;
}

static int scalar(PyObject *value, char code, Argument *into) {
  if (code == 'd') {
    into->real = PyFloat_AsDouble(value);
    return PyErr_Occurred() ? -1 : 0;
  }
  if (code == '?') {
    into->whole = PyObject_IsTrue(value);
    return into->whole < 0 ? -1 : 0;
  }
  PyObject *number = PyNumber_Index(value);
  if (number == NULL) return -1;
  if (code == 'L') into->natural = PyLong_AsUnsignedLongLong(number);
  else into->whole = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return PyErr_Occurred() ? -1 : 0;
}

static int fits(const char *pattern, const Argument *arguments, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    char access = pattern[3 * i + 1];
    if (access == '0') continue;
    if (arguments[i].code != pattern[3 * i]) return 0;
    if (arguments[i].buffer.ndim != pattern[3 * i + 2] - '0') return 0;
    if (access == 'w' && arguments[i].buffer.readonly) return 0;
  }
  return 1;
}

static PyObject *dispatch(const char *name, const Overload *overloads, int number,
                          PyObject *const *args, Py_ssize_t count) {
  Argument arguments[MOST];
  PyObject *result = NULL;
  Py_ssize_t parsed = 0;
  const char *first = overloads[0].pattern;
  if ((Py_ssize_t)strlen(first) != 3 * count || count > MOST)
    return PyErr_Format(PyExc_TypeError, "kernel %s takes %zd arguments, got %zd", name,
                        (Py_ssize_t)strlen(first) / 3, count);
  for (; parsed < count; parsed++) {
    Argument *one = &arguments[parsed];
    one->code = 0;
    if (first[3 * parsed + 1] == '0') {
      if (scalar(args[parsed], first[3 * parsed], one) < 0) goto done;
    } else {
      int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
      if (PyObject_GetBuffer(args[parsed], &one->buffer, flags) < 0) goto done;
      one->code = element(&one->buffer);
    }
  }
  for (int i = 0; i < number; i++) {
    if (!fits(overloads[i].pattern, arguments, count)) continue;
    if (overloads[i].call(arguments, &result) < 0)
      PyErr_Format(PyExc_RuntimeError, "kernel %s failed", name);
    else if (result == NULL && !PyErr_Occurred())
      result = Py_NewRef(Py_None);
    goto done;
  }
  PyErr_Format(PyExc_TypeError, "kernel %s: no signature for these arrays (types and "
               "whether they may be written must match)", name);
done:
  for (Py_ssize_t i = 0; i < parsed; i++)
    if (arguments[i].code) PyBuffer_Release(&arguments[i].buffer);
  return result;
}
"""
