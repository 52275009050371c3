# SPDX-License-Identifier: Apache-2.0
#
# What the kernel of Python knows of figures and tables. It is run when a cell shows the
# first of them.

import io
import math
import re

MAX_PIXELS = 30_000_000  # of a picture
MAX_SIDE = 30_000
MAX_VALUES = 100_000  # of a chart or a table as data; larger ones have none


def picture(figure):
    """A figure as PNG."""
    width, height = figure.get_size_inches()
    dpi = figure.dpi
    # A larger one has fewer dots for an inch.
    dpi *= min(1, MAX_SIDE / (max(width, height) * dpi), math.sqrt(MAX_PIXELS / (width * height * dpi * dpi)))
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, bbox_inches=frame(figure, dpi))
    return out.getvalue()


def frame(figure, dpi):
    """What of a figure is in its picture: all that is drawn, unless that is far away."""
    try:
        if getattr(figure, "get_layout_engine", lambda: True)() is not None:
            figure.draw_without_rendering()  # else a seventh of the time goes into it
        box = figure.get_tightbbox(figure.canvas.get_renderer()).padded(0.1)
        width, height = box.width * dpi, box.height * dpi
        if math.isfinite(width * height) and width * height <= MAX_PIXELS and max(width, height) <= MAX_SIDE:
            return box
    except Exception:
        pass
    return None


def chart(figure):
    """A figure as data; its picture was made before, so that its ticks have their labels."""
    charts = [c for c in map(axes_chart, figure.axes) if c is not None]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) is not None else None
    if not charts:
        return {"type": "unknown", "title": title or None, "elements": []}
    return {"type": "superchart", "title": title or None, "elements": charts}


def axes_chart(axes):
    """A chart of one pair of axes; None where they are a colour bar's or hidden."""
    if axes.get_label() == "<colorbar>" or not axes.get_visible():
        return None
    made = None
    if axes.name == "rectilinear":
        for kind in (boxes, pie, bars, scatter, line):
            made = kind(axes)
            if made is not None:
                break
    if made is None or values(made) > MAX_VALUES:
        made = {"type": "unknown", "elements": []}
    made["title"] = axes.get_title() or None
    return made


def values(made):
    return sum(len(e.get("points", ())) + len(e.get("outliers", ())) + 1 for e in made["elements"])


UNIT = re.compile(r"\(([^()]*)\)|\[([^][]*)\]")


def labelled(axes, made):
    """Adds what a chart with two axes has."""
    for name, text in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
        unit = UNIT.search(text)
        made[name + "_label"] = text or None
        made[name + "_unit"] = (unit.group(1) or unit.group(2)) if unit else None
    return made


# Axes: what their numbers mean.

def scale_of(axis):
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    converter = type(converter).__name__
    if "Date" in converter or "Period" in converter:
        return "datetime"
    if "Category" in converter:
        return "categorical"
    return axis.get_scale()


def categories(axis):
    mapping = getattr(getattr(axis, "units", None), "_mapping", None) or {}
    return {number: str(name) for name, number in mapping.items()}


def meaning(axis):
    """What makes a value of a number on an axis."""
    scale = scale_of(axis)
    if scale == "datetime":
        from matplotlib.dates import num2date

        def date(number):
            if hasattr(number, "isoformat"):
                return str(number.isoformat())
            try:
                return num2date(float(number)).replace(tzinfo=None).isoformat()
            except Exception:
                return str(number)
        return date
    if scale == "categorical":
        names = categories(axis)
        return lambda number: names.get(number, str(number))
    return number_of


def number_of(value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) and abs(number) < 2 ** 53 else number


def points(axes, xs, ys):
    x, y = meaning(axes.xaxis), meaning(axes.yaxis)
    return [[x(a), y(b)] for a, b in zip(xs, ys)]


def ticked(axes, made):
    """Adds what a chart of points has."""
    labelled(axes, made)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        value = meaning(axis)
        made[name + "_ticks"] = [value(t) for t in axis.get_ticklocs()]
        made[name + "_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
        made[name + "_scale"] = scale_of(axis)
    return made


# Kinds of charts.

def label_of(artist, kind, number):
    text = str(artist.get_label())
    return "%s %d" % (kind, number) if not text or text.startswith("_") else text


def line(axes):
    lines = [l for l in axes.get_lines() if l.get_transform() == axes.transData and len(l.get_xdata())]
    if not lines:
        return None
    made = {"type": "line", "elements": [
        {"label": label_of(l, "Line", i), "points": points(axes, l.get_xdata(orig=False), l.get_ydata(orig=False))}
        for i, l in enumerate(lines)
    ]}
    return ticked(axes, made)


def scatter(axes):
    found = [c for c in axes.collections if type(c).__name__ == "PathCollection" and c.get_offset_transform() == axes.transData]
    found = [c for c in found if len(c.get_offsets())]
    if not found:
        return None
    made = {"type": "scatter", "elements": [
        {"label": label_of(c, "Dataset", i), "points": points(axes, *zip(*c.get_offsets().tolist()))}
        for i, c in enumerate(found)
    ]}
    return ticked(axes, made)


def bars(axes):
    found = [c for c in axes.containers if type(c).__name__ == "BarContainer" and len(c.patches)]
    if not found:
        return None
    elements = []
    for i, container in enumerate(found):
        lying = getattr(container, "orientation", None) == "horizontal"
        axis = axes.yaxis if lying else axes.xaxis
        names = categories(axis) or {}
        ticks = [(t, l.get_text()) for t, l in zip(axis.get_ticklocs(), axis.get_ticklabels()) if l.get_text()]
        for bar in container.patches:
            start, length = (bar.get_y(), bar.get_height()) if lying else (bar.get_x(), bar.get_width())
            elements.append({
                "label": name_of(axis, start + length / 2, abs(length), names, ticks),
                "value": number_of(bar.get_width() if lying else bar.get_height()),
                "group": label_of(container, "Group", i),
            })
    return labelled(axes, {"type": "bar", "elements": elements})


def name_of(axis, middle, length, names, ticks):
    """The name of what lies at a place of an axis."""
    if names.get(round(middle)) is not None and abs(middle - round(middle)) < 0.5:
        return names[round(middle)]
    fixed = type(axis.get_major_formatter()).__name__ in ("FixedFormatter", "FuncFormatter")
    if fixed and ticks:
        tick, text = min(ticks, key=lambda t: abs(t[0] - middle))
        gaps = [b[0] - a[0] for a, b in zip(ticks, ticks[1:])]
        if abs(tick - middle) <= max(length, min(gaps) / 2 if gaps else length):
            return text
    return str(meaning(axis)(round(middle, 12)))


def pie(axes):
    wedges = [p for p in axes.patches if type(p).__name__ == "Wedge"]
    if not wedges:
        return None
    return {"type": "pie", "elements": [
        {"label": "" if str(w.get_label()).startswith("_") else str(w.get_label()),
         "angle": number_of(round(abs(w.theta2 - w.theta1), 3)), "radius": number_of(w.r)}
        for w in wedges
    ]}


def boxes(axes):
    """Boxes and whiskers, whose numbers were kept when they were drawn."""
    kept = getattr(axes, "_caisson_boxes", None)
    if not kept:
        return None
    axis, elements = axes.xaxis, []
    ticks = [label.get_text() for label in axis.get_ticklabels()]
    for i, box in enumerate(kept):
        label = box.get("label")
        if label is None or str(label) == "":
            label = ticks[i] if len(ticks) == len(kept) else str(i + 1)
        elements.append({
            "label": str(label), "min": number_of(box["whislo"]), "first_quartile": number_of(box["q1"]),
            "median": number_of(box["med"]), "third_quartile": number_of(box["q3"]), "max": number_of(box["whishi"]),
            "outliers": [number_of(v) for v in box.get("fliers", ())],
        })
    return labelled(axes, {"type": "box_and_whisker", "elements": elements})


def table(frame):
    """The columns of a table by their names; None where it is too large."""
    rows, columns = frame.shape
    if rows * columns > MAX_VALUES:
        return None
    if hasattr(frame, "to_dict") and not hasattr(frame, "iloc"):  # polars
        return frame.to_dict(as_series=False)
    return {str(name): frame.iloc[:, i].tolist() for i, name in enumerate(frame.columns)}
