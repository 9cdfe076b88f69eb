// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import "testing"

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 0, 0},
		{"", "ab", 2, 2},
		{"image", "image", 2, 0},
		{"imge", "image", 2, 1},   // one is missing
		{"iimage", "image", 2, 1}, // one is too much
		{"imaje", "image", 2, 1},  // another one
		{"iamge", "image", 2, 1},  // two are swapped
		{"gpu-fractoin", "gpu-fraction", 2, 1},
		{"iamgee", "image", 2, 2},
		{"kitten", "sitting", 3, 3},
		{"kitten", "sitting", 1, 3}, // lengths that differ by one are compared
		{"a", "abcd", 2, 3},         // not compared
		{"abcd", "a", 2, 3},
		{"ü", "u", 2, 2}, // bytes
	} {
		for _, words := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			if got := EditDistance(words[0], words[1], test.limit); got != test.want {
				t.Errorf("EditDistance(%q, %q, %d) = %d, want %d", words[0], words[1], test.limit, got, test.want)
			}
		}
	}
}

func TestNearestWord(t *testing.T) {
	known := []string{"image", "images", "imago", "port"}
	for word, want := range map[string]string{
		"image": "image", "imges": "images", "imag": "image", "imagoo": "imago", "prot": "port", "command": "", "abc": "", "x": "",
	} {
		if got := NearestWord(word, known, 2); got != want {
			t.Errorf("NearestWord(%q) = %q, want %q", word, got, want)
		}
	}
	if got := NearestWord("image", nil, 2); got != "" {
		t.Errorf("of no words the nearest is %q", got)
	}
}
