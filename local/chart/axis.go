package chart

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// scale sets how the axis is divided. Its range is that of the data.
func (a Axis) scale(axis *plot.Axis) {
	if !a.Log {
		axis.Tick.Marker = plot.TickerFunc(linearTicks)
		return
	}
	axis.Scale = plot.LogScale{}
	axis.Tick.Marker = plot.TickerFunc(logTicks)
	low, high := stepBelow(axis.Min), stepBelow(axis.Max)
	if high < axis.Max || low == high {
		high = stepAbove(high)
	}
	axis.Min, axis.Max = low, high
}

// linearTicks are those of the library with labels as in the documents.
func linearTicks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = label(ticks[i].Value)
		}
	}
	return ticks
}

// wide is from how many decades a logarithmic axis names the powers of ten alone.
const wide = 3

// logTicks are at 1, 2 … 9 times the powers of ten.
func logTicks(low, high float64) []plot.Tick {
	few := math.Log10(high/low) < wide
	var ticks []plot.Tick
	for power := int(math.Floor(math.Log10(low))); math.Pow10(power) <= high; power++ {
		for digit := 1; digit <= 9; digit++ {
			tick := plot.Tick{Value: float64(digit) * math.Pow10(power)}
			if digit == 1 || few && (digit == 2 || digit == 5) {
				tick.Label = label(tick.Value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// stepBelow is the largest of 1, 2 and 5 times the powers of ten that is not
// above v.
func stepBelow(v float64) float64 {
	const inexact = 1e-9 // math.Log10(1000) is a little less than 3
	power := math.Pow10(int(math.Floor(math.Log10(v) + inexact)))
	switch digit := v / power; {
	case digit >= 5:
		return 5 * power
	case digit >= 2:
		return 2 * power
	default:
		return power
	}
}

// stepAbove is the step after one that stepBelow returned.
func stepAbove(step float64) float64 {
	return stepBelow(step * 2.5)
}

// label writes a number as 0.05, 20 or 100,000.
func label(v float64) string {
	// What is behind six digits comes of arithmetic. The text is a number: there is no error.
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	whole, decimals, point := strings.Cut(strconv.FormatFloat(math.Abs(rounded), 'f', -1, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + decimals
	}
	if rounded < 0 {
		return "−" + whole
	}
	return whole
}
