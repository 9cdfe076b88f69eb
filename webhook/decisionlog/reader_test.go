// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/webhook/decisionlog"
)

func TestReaderOfHostileLogs(t *testing.T) {
	const good = `{"kind":"DecisionRecord","version":1,"webhook":"pods","later":{"field":[1]}}`
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write([]byte(good + "\n" + good + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text    string
		records int
		want    decisionlog.Skipped
	}{
		"empty":            {"", 0, decisionlog.Skipped{}},
		"unknown fields":   {good + "\n", 1, decisionlog.Skipped{}},
		"no last newline":  {good + "\n" + good, 2, decisionlog.Skipped{}},
		"incomplete":       {good + "\n" + good[:40], 1, decisionlog.Skipped{Incomplete: 1}},
		"empty lines":      {"\n\r\n" + good + "\r\n\n", 1, decisionlog.Skipped{}},
		"other lines":      {"plain text\n{\"level\":\"INFO\"}\n" + good + "\n", 1, decisionlog.Skipped{Other: 2}},
		"named in a text":  {`{"kind":"Other","msg":"DecisionRecord"}` + "\n", 0, decisionlog.Skipped{Other: 1}},
		"later version":    {`{"kind":"DecisionRecord","version":2}` + "\n", 0, decisionlog.Skipped{Newer: 1}},
		"later types":      {`{"kind":"DecisionRecord","version":2,"evaluations":"x"}` + "\n", 0, decisionlog.Skipped{Newer: 1}},
		"other types":      {`{"kind":"Other","msg":"DecisionRecord","evaluations":"x"}` + "\n", 0, decisionlog.Skipped{Other: 1}},
		"no version":       {`{"kind":"DecisionRecord"}` + "\n", 0, decisionlog.Skipped{Broken: 1}},
		"wrong type":       {`{"kind":"DecisionRecord","version":1,"evaluations":"x"}` + "\n", 0, decisionlog.Skipped{Broken: 1}},
		"wrong time":       {`{"kind":"DecisionRecord","version":1,"time":"yesterday"}` + "\n", 0, decisionlog.Skipped{Broken: 1}},
		"version as text":  {`{"kind":"DecisionRecord","version":"1"}` + "\n", 0, decisionlog.Skipped{Broken: 1}},
		"nested":           {`{"kind":"DecisionRecord","version":1,"x":` + strings.Repeat("[", 1<<20) + "\n" + good + "\n", 1, decisionlog.Skipped{Broken: 1}},
		"too long":         {strings.Repeat("x", decisionlog.MaxLineBytes+1) + "\n" + good + "\n", 1, decisionlog.Skipped{TooLong: 1}},
		"too long, no end": {good + "\n" + strings.Repeat("x", decisionlog.MaxLineBytes+1), 1, decisionlog.Skipped{TooLong: 1}},
		"binary":           {"\x00\xff\xfe DecisionRecord \x00\n" + good + "\n", 1, decisionlog.Skipped{Broken: 1}},
		"compressed":       {zipped.String(), 2, decisionlog.Skipped{}},
	} {
		t.Run(name, func(t *testing.T) {
			records, skipped := readAll(t, strings.NewReader(tc.text))
			if records != tc.records || skipped != tc.want {
				t.Errorf("%d records, %+v; want %d, %+v", records, skipped, tc.records, tc.want)
			}
		})
	}
	reader, err := decisionlog.NewReader(strings.NewReader(zipped.String()[:zipped.Len()-10]))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = reader.Next()
	}
	if err.Error() != "unexpected EOF" {
		t.Errorf("a truncated file ends with %v", err)
	}
	if _, err := decisionlog.NewReader(strings.NewReader("\x1f\x8bxxxxxxxxxxxxxxxx")); err == nil {
		t.Error("an invalid compressed file is read")
	}
}

// A file that is rotated while it is read is read to its end.
func TestFileRotatedWhileReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	file := &decisionlog.File{Path: path, MaxBytes: 2000, MaxFiles: 2}
	line := []byte(`{"kind":"DecisionRecord","version":1,"webhook":"pods"}` + "\n")
	write := func(n int) {
		for range n {
			if _, err := file.Write(line); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(30)
	source, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	write(100) // it is removed meanwhile
	if records, skipped := readAll(t, source); records != 2000/len(line) || skipped != (decisionlog.Skipped{}) {
		t.Errorf("%d records, %+v", records, skipped)
	}
}

// No log makes the reader fail, and what it accepts is a record of a known version.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"kind":"DecisionRecord","version":1,"input":{"object":{}},"patch":[]}` + "\n"))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte(`{"kind":"DecisionRecord","version":1,"evaluations":[{"policy":"a","microseconds":1e99}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, skipped := readAll(t, bytes.NewReader(text))
		if lines := bytes.Count(text, []byte("\n")) + 1; !bytes.HasPrefix(text, []byte("\x1f\x8b")) && records+skipped.Broken+skipped.Newer+skipped.Other > lines {
			t.Errorf("%d records, %+v in %d lines", records, skipped, lines)
		}
	})
}
