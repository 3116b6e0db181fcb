"""Chemical elements: their symbols, and the colours that chemists know them by."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

PERIODIC_TABLE = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv "
    "Ts Og"
)
SYMBOLS = PERIODIC_TABLE.split()
UNKNOWN = "*"  # an atom of any element, number 0

# The columns of x in the TU collection's Mutagenicity.
MUTAGENICITY_ELEMENTS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

# The hues of Corey, Pauling and Koltun, but pale: full red and blue are for attributions.
ELEMENT_COLORS = {
    "H": "#ffffff",
    "C": "#c8c8c8",
    "N": "#b9c6fb",
    "O": "#fbb9b3",
    "S": "#f7e58a",
    "P": "#fbc98f",
    "F": "#d3f2b0",
    "Cl": "#b4e8a8",
    "Br": "#d9a99b",
    "I": "#d6aee0",
    "B": "#f6d3c6",
    "Si": "#eadcc0",
}
OTHER_COLOR = "#e6d5f5"  # metals and the rest


def element_symbols(atoms: Sequence[str | int] | Tensor) -> list[str]:
    """Return the symbols of elements that are given by symbol or by atomic number (0 and ``"*"``: not known).

    Args:
        atoms: One entry per atom.

    Raises:
        ValueError: If there is no such element.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.elements import element_symbols
        >>> element_symbols(torch.tensor([6, 17])), element_symbols(["c", "CL"])
        (['C', 'Cl'], ['C', 'Cl'])
    """
    if isinstance(atoms, Tensor):
        if atoms.dim() != 1 or atoms.is_floating_point():
            raise ValueError(
                f"Expected atoms to be atomic numbers, integers [N] (got {atoms.dtype} {list(atoms.shape)}). "
                "For one-hot features, use one_hot_atoms."
            )
        atoms = atoms.tolist()
    return [_symbol(atom) for atom in atoms]


def _symbol(atom: str | int) -> str:
    if isinstance(atom, str):
        symbol = atom.strip().capitalize()
        if symbol == UNKNOWN or symbol in SYMBOLS:
            return symbol
    elif 0 <= atom <= len(SYMBOLS):
        return SYMBOLS[atom - 1] if atom else UNKNOWN
    raise ValueError(f"Expected the symbol or the number of an element (got {atom!r}).")


def one_hot_atoms(x: Tensor, elements: Sequence[str] = MUTAGENICITY_ELEMENTS) -> list[str]:
    """Return the elements of atoms whose features say which one it is.

    Args:
        x: The features, ``[N, len(elements)]``, with a 1 in the column of the element.
        elements: The elements of the columns. The default is that of Mutagenicity in the TU collection.

    Raises:
        ValueError: If ``x`` is not one-hot.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import one_hot_atoms
        >>> one_hot_atoms(torch.eye(14)[[0, 4, 1, 1]])
        ['C', 'N', 'O', 'O']
    """
    if x.dim() != 2 or x.size(1) != len(elements):
        raise ValueError(f"Expected x of shape [N, {len(elements)}], a column per element (got {list(x.shape)}).")
    if not (((x == 0) | (x == 1)).all() and (x.sum(dim=1) == 1).all()):
        raise ValueError("Expected x to be one-hot, a single 1 per atom (got other features).")
    return [elements[column] for column in x.argmax(dim=1).tolist()]


def element_colours(symbols: Sequence[str]) -> list[str]:
    """Return a colour of matplotlib per atom."""
    return [ELEMENT_COLORS.get(symbol, OTHER_COLOR) for symbol in symbols]
