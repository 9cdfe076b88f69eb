// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// luminance is WCAG's, of a colour written #rrggbb.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	var c [3]int
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
		t.Fatalf("%s: %v", colour, err)
	}
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v := float64(c[i]) / 255
		if v <= 0.03928 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

// TestContrast: all text stands out by 4.5 to 1 at least, light and dark.
func TestContrast(t *testing.T) {
	raw, err := texts.ReadFile("texts/layout.html.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range []struct{ what, ink, ground string }{
		{"text", "#1a2230", "#ffffff"},
		{"small print", "#5a6675", "#ffffff"},
		{"accent", "#0b5cad", "#ffffff"},
		{"deadline", "#1a2230", "#eaf2fb"},
		{"its label", "#5a6675", "#eaf2fb"},
		{"how long", "#0b5cad", "#eaf2fb"},
		{"command", "#1a2230", "#f3f5f8"},
		{"dark text", "#e8ebf0", "#1d2229"},
		{"dark small print", "#aab4c2", "#1d2229"},
		{"dark accent", "#7db8f5", "#1d2229"},
		{"dark deadline", "#e8ebf0", "#16283d"},
		{"its dark label", "#aab4c2", "#16283d"},
		{"dark how long", "#7db8f5", "#16283d"},
		{"dark command", "#e8ebf0", "#12151a"},
	} {
		for _, colour := range []string{pair.ink, pair.ground} {
			if !strings.Contains(string(raw), colour) {
				t.Errorf("%s: the layout has no %s any more", pair.what, colour)
			}
		}
		a, b := luminance(t, pair.ink), luminance(t, pair.ground)
		if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
			t.Errorf("%s: %s on %s has a contrast of %.1f", pair.what, pair.ink, pair.ground, ratio)
		}
	}
}
