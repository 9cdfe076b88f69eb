// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Files that exist are refused, kept or replaced, and a refusal writes nothing.
func TestWritePolicyFiles(t *testing.T) {
	files := map[string]string{"equal": "a", "new": "b", "other": "c"}
	for name, tc := range map[string]struct {
		existing existingFiles
		present  map[string]string
		written  []string
		want     string
	}{
		"refused":                 {refuseExisting, map[string]string{"equal": "a"}, nil, "equal exists; nothing was written: try again"},
		"refused, two":            {refuseExisting, map[string]string{"equal": "a", "other": "x"}, nil, "other exist; nothing"},
		"nothing to refuse":       {refuseExisting, nil, []string{"equal", "new", "other"}, ""},
		"kept":                    {keepEqual, map[string]string{"equal": "a"}, []string{"new", "other"}, ""},
		"kept, another content":   {keepEqual, map[string]string{"equal": "a", "other": "x"}, nil, "other exists with another content; nothing"},
		"replaced":                {replaceExisting, map[string]string{"equal": "a", "other": "a longer one"}, []string{"new", "other"}, ""},
		"replaced, all are equal": {replaceExisting, files, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "out")
			if tc.present != nil {
				if err := os.Mkdir(directory, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for file, text := range tc.present {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			written, err := writePolicyFiles(directory, files, tc.existing, "try again")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("the error is %v, want %q", err, tc.want)
			}
			var names []string
			for _, path := range written {
				names = append(names, filepath.Base(path))
			}
			if diff := cmp.Diff(tc.written, names); diff != "" {
				t.Errorf("written files differ (-want +got)\n%s", diff)
			}
			want := files
			if tc.want != "" {
				want = tc.present
			}
			got := make(map[string]string)
			entries, err := os.ReadDir(directory)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				text, err := os.ReadFile(filepath.Join(directory, entry.Name()))
				if err != nil {
					t.Fatal(err)
				}
				got[entry.Name()] = string(text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the directory differs (-want +got)\n%s", diff)
			}
		})
	}
}
