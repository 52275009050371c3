// SPDX-License-Identifier: Apache-2.0

package interpreter_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/interpreter"
)

// figures are the charts of a cell's figures, each of which must have a picture.
func figures(t *testing.T, o *told) (charts []map[string]any) {
	t.Helper()
	for _, r := range o.results {
		form := r.Data[interpreter.ChartType]
		if form == nil {
			continue
		}
		png, err := base64.StdEncoding.DecodeString(text(r, "image/png"))
		if err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
			t.Errorf("a figure has no picture: %v", err)
		}
		var c map[string]any
		if err := json.Unmarshal(form, &c); err != nil {
			t.Error(err)
		}
		charts = append(charts, c)
	}
	return charts
}

func TestCharts(t *testing.T) {
	needModule(t, "matplotlib")
	test := func(t *testing.T, b *bench) {
		b.code(interpreter.Python, "import matplotlib.pyplot as plt\nimport datetime")
		for name, tt := range map[string]struct{ code, want string }{
			"line": {"plt.plot([1, 2, 3], [1, 4, 9], label='sq')\nplt.plot([1, 2], [3, 4])\nplt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Way')\nplt.xticks([1, 2, 3]); plt.yticks([0, 5])\nplt.show()",
				`{"type":"line","title":"T","x_label":"Time (s)","y_label":"Way","x_unit":"s","y_unit":null,"x_ticks":[1,2,3],"x_tick_labels":["1","2","3"],"x_scale":"linear","y_ticks":[0,5],"y_tick_labels":["0","5"],"y_scale":"linear","elements":[{"label":"sq","points":[[1,1],[2,4],[3,9]]},{"label":"Line 1","points":[[1,3],[2,4]]}]}`},
			"dates": {"plt.plot([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, 12)], [1, 10])\nplt.yscale('log')\nplt.xticks([datetime.datetime(2024, 1, 1)], ['day']); plt.yticks([1, 10], ['a', 'b'])\nplt.minorticks_off()",
				`{"type":"line","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"x_ticks":["2024-01-01T00:00:00"],"x_tick_labels":["day"],"x_scale":"datetime","y_ticks":[1,10],"y_tick_labels":["a","b"],"y_scale":"log","elements":[{"label":"Line 0","points":[["2024-01-01T00:00:00",1],["2024-01-02T12:00:00",10]]}]}`},
			"scatter": {"fig, ax = plt.subplots()\nax.scatter([1, 2], [3.5, 4], label='d'); ax.set_xticks([1]); ax.set_yticks([4])\nax.scatter(['a', 'b'], [1, 2]) if False else None\nfig",
				`{"type":"scatter","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"x_ticks":[1],"x_tick_labels":["1"],"x_scale":"linear","y_ticks":[4],"y_tick_labels":["4"],"y_scale":"linear","elements":[{"label":"d","points":[[1,3.5],[2,4]]}]}`},
			"categories": {"plt.scatter(['a', 'b'], [1, 2])\nplt.yticks([1])",
				`{"type":"scatter","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"x_ticks":["a","b"],"x_tick_labels":["a","b"],"x_scale":"categorical","y_ticks":[1],"y_tick_labels":["1"],"y_scale":"linear","elements":[{"label":"Dataset 0","points":[["a",1],["b",2]]}]}`},
			"bar": {"plt.bar(['x', 'y'], [3, 4], label='Sold'); plt.ylabel('Price [EUR]')",
				`{"type":"bar","title":null,"x_label":null,"y_label":"Price [EUR]","x_unit":null,"y_unit":"EUR","elements":[{"label":"x","value":3,"group":"Sold"},{"label":"y","value":4,"group":"Sold"}]}`},
			"lying": {"plt.barh(['x', 'y'], [3, 4])",
				`{"type":"bar","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"elements":[{"label":"x","value":3,"group":"Group 0"},{"label":"y","value":4,"group":"Group 0"}]}`},
			"groups": {"plt.bar([-0.2, 0.8], [1, 2], 0.4, label='m'); plt.bar([0.2, 1.2], [3, 4], 0.4, label='w'); plt.xticks([0, 1], ['G1', 'G2'])",
				`{"type":"bar","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"elements":[{"label":"G1","value":1,"group":"m"},{"label":"G2","value":2,"group":"m"},{"label":"G1","value":3,"group":"w"},{"label":"G2","value":4,"group":"w"}]}`},
			"pie": {"plt.pie([9, 1], labels=['No', 'Never'])",
				`{"type":"pie","title":null,"elements":[{"label":"No","angle":324,"radius":1},{"label":"Never","angle":36,"radius":1}]}`},
			"box": {"plt.boxplot([[1, 2, 3, 4, 100], [2, 2, 2]], labels=['A', 'B'])",
				`{"type":"box_and_whisker","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"elements":[{"label":"A","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[100]},{"label":"B","min":2,"first_quartile":2,"median":2,"third_quartile":2,"max":2,"outliers":[]}]}`},
			"several": {"fig, (a, c) = plt.subplots(1, 2)\nfig.suptitle('Both'); a.pie([1]); c.bar(['x'], [1]); c.set_title('C')",
				`{"type":"superchart","title":"Both","elements":[{"type":"pie","title":null,"elements":[{"label":"","angle":360,"radius":1}]},{"type":"bar","title":"C","x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"elements":[{"label":"x","value":1,"group":"Group 0"}]}]}`},
			"unknown":  {"plt.contourf([[1, 2], [3, 4]]); plt.colorbar(); plt.title('F')", `{"type":"unknown","title":"F","elements":[]}`},
			"3-D":      {"plt.figure().add_subplot(projection='3d').plot([1], [2], [3])", `{"type":"unknown","title":null,"elements":[]}`},
			"nothing":  {"plt.figure()", `{"type":"unknown","title":null,"elements":[]}`},
			"no value": {"plt.plot([1, float('nan')], [1, float('inf')]); plt.xticks([1]); plt.yticks([1])", `{"type":"line","title":null,"x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"x_ticks":[1],"x_tick_labels":["1"],"x_scale":"linear","y_ticks":[1],"y_tick_labels":["1"],"y_scale":"linear","elements":[{"label":"Line 0","points":[[1,1],[null,null]]}]}`},
		} {
			t.Run(name, func(t *testing.T) {
				o := b.code(interpreter.Python, tt.code)
				charts := figures(t, o)
				if len(charts) != 1 || o.end.Status != interpreter.Done {
					t.Fatalf("%d figures, %+v %+v %s", len(charts), o.end, o.failure, o.err)
				}
				var want map[string]any
				if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, charts[0]); d != "" {
					t.Error(d)
				}
			})
		}
	}
	test(t, bare(t))
}

// All figures of a cell are shown once, and none is left for the next.
func TestFigures(t *testing.T) {
	needModule(t, "matplotlib")
	pythons(t, func(t *testing.T, b *bench) {
		b.code(interpreter.Python, "import matplotlib.pyplot as plt")
		for name, tt := range map[string]struct {
			code string
			want int
		}{
			"left open":   {"for i in range(3):\n    plt.figure(); plt.plot([i])", 3},
			"shown":       {"plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", 2},
			"the value":   {"fig = plt.figure(); fig", 1},
			"by itself":   {"fig = plt.figure(); fig.show()", 1},
			"then raises": {"plt.plot([1]); 1/0", 1},
			"saved":       {"plt.plot([1]); plt.savefig('saved.png')", 1},
			"closed":      {"plt.plot([1]); plt.close()", 0},
			"huge":        {"plt.figure(figsize=(100000, 100000)); plt.plot([1])", 1},
			"far text":    {"plt.text(1e9, 1e9, 'far'); plt.xlim(0, 1); plt.ylim(0, 1)", 1},
			"none":        {"1", 0},
		} {
			t.Run(name, func(t *testing.T) {
				o := b.code(interpreter.Python, tt.code)
				if n := len(figures(t, o)); n != tt.want {
					t.Errorf("%d figures, want %d; %+v %s", n, tt.want, o.end, o.err)
				}
			})
		}
	})
}

func TestTablesAndPictures(t *testing.T) {
	needModule(t, "pandas")
	needModule(t, "PIL")
	pythons(t, func(t *testing.T, b *bench) {
		o := b.code(interpreter.Python, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [1.5, None], 'c': ['x', 'y'], 'd': pd.to_datetime(['2024-01-01', None])})")
		if len(o.results) != 1 {
			t.Fatalf("%+v %+v", o.end, o.failure)
		}
		r := o.results[0]
		if got, want := string(r.Data[interpreter.DataType]), `{"a": [1, 2], "b": [1.5, null], "c": ["x", "y"], "d": ["2024-01-01T00:00:00", null]}`; got != want {
			t.Errorf("data %s", got)
		}
		if !strings.Contains(text(r, "text/html"), "<table") || !strings.Contains(text(r, "text/plain"), "2024-01-01") {
			t.Errorf("%v", r.Data)
		}
		if o := b.code(interpreter.Python, "pd.DataFrame({'a': range(200_000)})"); o.results[0].Data[interpreter.DataType] != nil {
			t.Error("a large table is there as data")
		}
		o = b.code(interpreter.Python, "from PIL import Image\ni = Image.new('CMYK', (2, 2))\ni.show()\ni.save('saved.jpg')\ni.save(open('opened.jpg', 'wb'), 'JPEG')\ni")
		if len(o.results) != 3 || !strings.HasPrefix(text(o.results[0], "image/png"), "iVBOR") || !strings.HasPrefix(text(o.results[1], "image/png"), "iVBOR") || !o.results[2].Main {
			t.Errorf("%d results, %+v", len(o.results), o.failure)
		}
		o = b.code(interpreter.Python, "class A:\n"+
			"    def _repr_html_(self): return '<b>'\n    def _repr_markdown_(self): return '# m'\n    def _repr_svg_(self): return '<svg/>'\n"+
			"    def _repr_png_(self): return b'\\x89PNG'\n    def _repr_jpeg_(self): return b'j'\n    def _repr_pdf_(self): return b'%PDF'\n"+
			"    def _repr_latex_(self): return '$x$'\n    def _repr_json_(self): return {'a': [1]}\n    def _repr_javascript_(self): return 'alert()'\nA()")
		if len(o.results) != 1 {
			t.Fatalf("%+v %+v", o.end, o.failure)
		}
		for mime, want := range map[string]string{
			"text/html": "<b>", "text/markdown": "# m", "image/svg+xml": "<svg/>", "image/png": "iVBORw==", "image/jpeg": "ag==",
			"application/pdf": "JVBERg==", "text/latex": "$x$", "application/json": `{"a": [1]}`, "application/javascript": "alert()",
		} {
			if got := text(o.results[0], mime); got != want {
				t.Errorf("%s is %q, want %q", mime, got, want)
			}
		}
	})
}
