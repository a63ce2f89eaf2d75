package results

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

const (
	width, height = 18 * vg.Centimeter, 9 * vg.Centimeter
	barWidth      = 0.9 * vg.Centimeter
	// headroom leaves space for the legend above the bars.
	headroom = 1.2
)

// series is one line, or the bars of one colour. It has a value for each group.
type series struct {
	name   string
	values []float64
}

// Draw writes the charts as SVG files into the directory. A table without rows has no chart.
func (r Results) Draw(dir string) error {
	for name, draw := range map[string]func() (*plot.Plot, error){
		"bench-attach.svg": r.attachChart, "bench-ipam.svg": r.ipamChart, "bench-restore.svg": r.restoreChart,
	} {
		p, err := draw()
		if err == nil && p != nil {
			err = save(p, filepath.Join(dir, name))
		}
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
	}
	return nil
}

// save writes the chart. Few browsers have the font by whose widths it is laid out. Those of Arial are the same.
func save(p *plot.Plot, path string) error {
	w, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	if _, err := w.WriteTo(&svg); err != nil {
		return err
	}
	const family = "font-family:Liberation Sans"
	return os.WriteFile(path, bytes.ReplaceAll(svg.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif")), 0o644)
}

func (r Results) attachChart() (*plot.Plot, error) {
	if len(r.Attach) == 0 {
		return nil, nil
	}
	var all []series
	for _, a := range r.Attach {
		all = append(all, series{a.Who, []float64{a.Add.Median, a.Del.Median}})
	}
	p := newPlot("ADD and DEL, whole processes", "milliseconds, median")
	for i, s := range all {
		bars, err := plotter.NewBarChart(plotter.Values(s.values), barWidth)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = plotutil.Color(i), 0
		bars.Offset = barWidth * vg.Length(2*i-len(all)+1) / 2
		p.Add(bars)
		p.Legend.Add(s.name, bars)
	}
	p.Y.Max *= headroom
	p.NominalX("ADD", "DEL")
	p.X.Min, p.X.Max = -0.5, 1.5
	return p, nil
}

func (r Results) ipamChart() (*plot.Plot, error) {
	if len(r.IPAM) == 0 {
		return nil, nil
	}
	all := []series{{name: "host-local ADD"}, {name: "host-local DEL"}, {name: "relink-ipam ADD"}, {name: "relink-ipam DEL"}}
	var groups []string
	for _, i := range r.IPAM {
		groups = append(groups, strconv.Itoa(i.Held))
		for j, v := range []float64{i.TheirAdd.Median, i.TheirDel.Median, i.Add.Median, i.Del.Median} {
			all[j].values = append(all[j].values, v)
		}
	}
	p := newPlot("ADD and DEL of IPAM plugins", "milliseconds, median")
	p.X.Label.Text = "addresses held"
	return p, points(p, groups, all, true)
}

func (r Results) restoreChart() (*plot.Plot, error) {
	if len(r.Restore) == 0 {
		return nil, nil
	}
	all := []series{{name: "(a) ip commands"}, {name: "(b) library calls"}, {name: "(c) bare batches"}, {name: "(d) relink restore"}}
	var groups []string
	for _, s := range r.Restore {
		groups = append(groups, fmt.Sprintf("%d (%d)", s.Sandboxes, s.OnParent))
		for j, v := range []float64{s.Commands, s.Library, s.Batches, s.Relink} {
			all[j].values = append(all[j].values, v)
		}
	}
	p := newPlot("Restore after the loss of all parents", "milliseconds per sandbox, median")
	p.X.Label.Text = "sandboxes (of which share a parent)"
	return p, points(p, groups, all, false)
}

func newPlot(title, unit string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, unit
	p.Title.Padding = 4 * vg.Millimeter
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	return p
}

// points draws a mark for each value of each series above its group. If joined is set, the groups have an order and a
// line joins the marks. The scale is logarithmic, because values differ by a factor of hundreds.
func points(p *plot.Plot, groups []string, all []series, joined bool) error {
	least, most := all[0].values[0], all[0].values[0]
	for i, s := range all {
		var values plotter.XYs
		for x, y := range s.values {
			values = append(values, plotter.XY{X: float64(x), Y: y})
			least, most = min(least, y), max(most, y)
		}
		line, marks, err := plotter.NewLinePoints(values)
		if err != nil {
			return err
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		marks.Radius = 4 * vg.Points(1)
		if joined {
			p.Add(line)
		}
		p.Add(marks)
		p.Legend.Add(s.name, marks)
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	// The legend has room above the axis.
	p.Y.Min, p.Y.Max = least/2, math.Pow(10, math.Ceil(math.Log10(most)))
	p.NominalX(groups...)
	p.X.Min, p.X.Max = -0.5, float64(len(groups))-0.5
	return nil
}
