// Package chart draws line charts as SVG, for the documents and for programs
// that measure. The same data gives the same bytes.
//
//	err := chart.Chart{
//		Title: "Latency of a claim",
//		X:     chart.Axis{Label: "messages waiting", Log: true},
//		Y:     chart.Axis{Label: "p99 (ms)"},
//		Series: []chart.Series{
//			{Name: "SQLite", Points: [][2]float64{{1e3, 0.4}, {1e6, 0.5}}},
//			{Name: "goal", Points: [][2]float64{{1e3, 1}, {1e6, 1}}, Dashed: true},
//		},
//	}.WriteFile("docs/img/claim.svg")
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a picture of lines over common axes, with a legend beside it if they
// have names.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis says what is shown along an axis, and how.
type Axis struct {
	Label string // with the unit, such as "p99 (ms)"
	// Log makes equal distances equal ratios. Without it the vertical axis begins
	// at zero, unless values are below.
	Log bool
}

// Series is one line. Its colour goes by its place in the chart.
type Series struct {
	Name string
	// Points are x and y, in the order in which the line joins them. One that is
	// not finite, or that a logarithmic axis has no place for, leaves a gap.
	Points [][2]float64
	Dashed bool // for goals, models and other people's figures
}

// Size of the picture: 800 by 450 pixels of a browser.
const width, height = 600 * vg.Inch / 72, 337.5 * vg.Inch / 72

// marked is up to how many points a line shows each of them, and is thick: more
// would cover it.
const marked = 30

// WriteFile writes the chart as an SVG file. It fails if there is no point to
// draw.
func (c Chart) WriteFile(path string) error {
	canvas := vgsvg.New(width, height)
	if err := c.draw(draw.New(canvas)); err != nil {
		return fmt.Errorf("chart %q: %w", c.Title, err)
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("chart %q: %w", c.Title, err)
	}
	// Arial is as wide, and somewhere a reader has no Liberation.
	text := bytes.ReplaceAll(svg.Bytes(),
		[]byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;"))
	return os.WriteFile(path, text, 0o644) //nolint:gosec // a picture is for everyone to read
}

func (c Chart) draw(to draw.Canvas) error {
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.Padding = 10
	p.X.Label.Text, p.Y.Label.Text = c.X.Label, c.Y.Label
	p.X.Label.Padding, p.Y.Label.Padding = 4, 6
	p.Legend.Top = true
	p.Legend.Left = true
	p.Legend.Padding = 5
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant, style.Font.Size = "Sans", 9
	}
	p.Title.TextStyle.Font.Size = 12
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	for i, s := range c.Series {
		if err := c.add(p, s, i); err != nil {
			return fmt.Errorf("series %q: %w", s.Name, err)
		}
	}
	if p.X.Min > p.X.Max {
		return errors.New("no point to draw")
	}
	if !c.Y.Log {
		p.Y.Min, p.Y.Max = min(p.Y.Min, 0), max(p.Y.Max, 0)
	}
	c.X.scale(&p.X)
	c.Y.scale(&p.Y)

	to.SetColor(color.White)
	to.Fill(to.Path())
	page := draw.Crop(to, 10, -10, 8, -8)
	// The legend stands outside, where it hides no line.
	legend, between := p.Legend.Rectangle(page).Size().X, vg.Length(12)
	beside := draw.Crop(page, page.Size().X-legend, 0, 0, -p.Title.TextStyle.Rectangle(c.Title).Size().Y-p.Title.Padding)
	names := p.Legend
	p.Legend = plot.NewLegend()
	p.Draw(draw.Crop(page, 0, -legend-between, 0, 0))
	names.Draw(beside)
	return nil
}

// add draws a series: a line for each run of points without a gap.
func (c Chart) add(p *plot.Plot, s Series, place int) error {
	style := draw.LineStyle{Color: ink(place), Width: 1.5}
	if len(s.Points) > marked {
		style.Width = 1
	}
	if s.Dashed {
		style.Dashes = []vg.Length{5, 3}
	}
	for _, run := range c.runs(s.Points) {
		line, err := plotter.NewLine(run)
		if err != nil {
			return err
		}
		line.LineStyle = style
		p.Add(line)
		if len(s.Points) > marked && len(run) > 1 {
			continue
		}
		dots, err := plotter.NewScatter(run)
		if err != nil {
			return err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: 2, Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	if s.Name != "" {
		p.Legend.Add(s.Name, &plotter.Line{LineStyle: style})
	}
	return nil
}

// runs splits the points at those that cannot be shown.
func (c Chart) runs(points [][2]float64) []plotter.XYs {
	shows := func(a Axis, v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0) }
	var runs []plotter.XYs
	gap := true
	for _, at := range points {
		if !shows(c.X, at[0]) || !shows(c.Y, at[1]) {
			gap = true
			continue
		}
		if gap {
			runs = append(runs, nil)
			gap = false
		}
		last := &runs[len(runs)-1]
		*last = append(*last, plotter.XY{X: at[0], Y: at[1]})
	}
	return runs
}

// ink is the colour of the line at a place: those of Okabe and Ito, which people
// who see colours differently can tell apart, the darker ones first.
func ink(place int) color.Color {
	inks := []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff},
		{0xd5, 0x5e, 0x00, 0xff},
		{0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff},
		{0xe6, 0x9f, 0x00, 0xff},
		{0x00, 0x00, 0x00, 0xff},
	}
	return inks[place%len(inks)]
}
