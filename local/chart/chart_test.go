package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/chart"
)

// draw returns the file and the words in it, in its order.
func draw(t *testing.T, c chart.Chart) (svg []byte, words []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chart.svg")
	if err := c.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return svg, words
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(text)) > 0 {
			words = append(words, string(text))
		}
	}
}

// lines counts the lines in the colour of the first series.
func lines(svg []byte) int {
	n := 0
	for path := range strings.SplitSeq(string(svg), "<path") {
		if strings.Contains(path, "stroke:#0072B2") {
			n++
		}
	}
	return n
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	c := chart.Chart{
		Title: "Rate & <clients>", X: chart.Axis{Label: "clients", Log: true}, Y: chart.Axis{Label: "rate (1/s)"},
		Series: []chart.Series{
			{Name: "measured", Points: [][2]float64{{1, 10_000}, {8, 20_000}, {40, 30_000}}},
			{Name: "goal", Points: [][2]float64{{1, 15_000}, {40, 15_000}}, Dashed: true},
		},
	}
	svg, words := draw(t, c)
	want := []string{
		"Rate & <clients>", "clients", "1", "2", "5", "10", "20", "50",
		"rate (1/s)", "0", "10,000", "20,000", "30,000", "measured", "goal",
	}
	if !slices.Equal(words, want) {
		t.Errorf("the words are %q,\nwant %q", words, want)
	}
	if n := bytes.Count(svg, []byte("stroke-dasharray")); n != 2 {
		t.Errorf("%d lines are dashed, want 2: the goal and its legend", n)
	}
	if again, _ := draw(t, c); !bytes.Equal(svg, again) {
		t.Error("the same chart gives other bytes")
	}
}

func TestAxes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		log       bool
		low, high float64
		want      string
	}{
		{"from zero", false, 20, 100, "0 50 100"},
		{"below zero", false, -1000, 1000, "−1,000 0 1,000"},
		{"decimals", false, 0.1, 0.3, "0 0.15 0.3"},
		{"decades", true, 1000, 1e6, "1,000 10,000 100,000 1,000,000"},
		{"small", true, 0.03, 0.4, "0.02 0.05 0.1 0.2 0.5"},
		{"one value", true, 1000, 1000, "1,000 2,000"},
		{"between the steps", true, 3, 4, "2 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, words := draw(t, chart.Chart{
				X: chart.Axis{Label: "x"}, Y: chart.Axis{Label: "y", Log: tt.log},
				Series: []chart.Series{{Points: [][2]float64{{0, tt.low}, {1, tt.high}}}},
			})
			got := strings.Join(words[slices.Index(words, "y")+1:], " ")
			if got != tt.want {
				t.Errorf("the axis says %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		log  bool
		y    float64
		want int
	}{
		{"none", false, 0, 1},
		{"not a number", false, math.NaN(), 2},
		{"infinite", false, math.Inf(1), 2},
		{"zero on a logarithmic axis", true, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svg, _ := draw(t, chart.Chart{
				Y:      chart.Axis{Log: tt.log},
				Series: []chart.Series{{Points: [][2]float64{{0, 1}, {1, 2}, {2, tt.y}, {3, 2}, {4, 1}}}},
			})
			if got := lines(svg); got != tt.want {
				t.Errorf("the series is drawn as %d lines, want %d", got, tt.want)
			}
		})
	}
}

func TestNothingToDraw(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chart.svg")
	err := chart.Chart{
		Title: "empty", Y: chart.Axis{Log: true},
		Series: []chart.Series{{Name: "a", Points: [][2]float64{{1, 0}, {2, math.NaN()}}}},
	}.WriteFile(path)
	if err == nil || err.Error() != `chart "empty": no point to draw` {
		t.Errorf("WriteFile without points = %v, want an error", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there (%v)", err)
	}
}
