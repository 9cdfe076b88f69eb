// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"html"
	"io"
	"strings"
	"testing"

	"sluice.dev/lifecycle/notification/mail"
)

// TestRenderNoticeGallery: the page shows the HTML and the text of each example in both languages, and
// loads nothing from outside.
func TestRenderNoticeGallery(t *testing.T) {
	page, err := renderNoticeGallery()
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range mail.Examples() {
		m, err := mail.Compose(request)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`<section id="` + exampleName(request) + `">`, `href="#` + exampleName(request) + `"`} {
			if strings.Count(page, want) != 1 {
				t.Errorf("%q is not in the page once", want)
			}
		}
		if got := strings.Count(page, `srcdoc="`+html.EscapeString(m.HTML)+`"`); got != 3 {
			t.Errorf("%s: %d frames, want 3", request.Notice.Name, got)
		}
		if !strings.Contains(page, html.EscapeString(m.Subject)) || !strings.Contains(page, ">"+html.EscapeString(m.Text)+"</pre>") {
			t.Errorf("the subject or the text of %s is not in the page", request.Notice.Name)
		}
	}
	for _, outside := range []string{"<link", "@import", " src=", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	for _, args := range [][]string{{"--all", "WorkloadEnding"}, {"--all", "--language", "de"}, {"--all", "-o", "json"}} {
		cmd := newNoticesPreviewCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
