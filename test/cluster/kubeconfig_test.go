// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"regexp"
	"strings"
	"testing"
)

func TestFileName(t *testing.T) {
	tests := []struct {
		user   string
		groups []string
		want   string // without the hash
	}{
		{"anna.mueller@example.org", nil, "anna.mueller-example.org"},
		{"system:serviceaccount:default:webhook", nil, "system-serviceaccount-default-webhook"},
		{"../../etc/passwd", nil, "etc-passwd"},
		{"Müller", []string{"h2"}, "M-ller"},
		{"...", nil, ""},
		{strings.Repeat("x", 300), nil, strings.Repeat("x", 60)},
	}
	for _, tt := range tests {
		got := fileName(tt.user, tt.groups)
		if want := regexp.MustCompile("^" + regexp.QuoteMeta(tt.want) + "-[0-9a-f]{8}$"); !want.MatchString(got) {
			t.Errorf("%s: got %s", tt.user, got)
		}
	}
	distinct := map[string]bool{}
	for _, groups := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"ab"}} {
		distinct[fileName("a", groups)] = true
	}
	distinct[fileName("a@", nil)] = true
	if len(distinct) != 6 {
		t.Errorf("names are not unique: %v", distinct)
	}
}
