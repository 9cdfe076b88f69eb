// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
)

func TestParseTemplatesOverrides(t *testing.T) {
	templates, err := ParseTemplates(map[string]string{
		"WorkloadEnding.en.subject": "Mind {{.Workload}}: {{.Deadline.Brief}}",
		"WorkloadEnding.en.txt": "{{.Greeting}}\n{{.First}}\n{{range .How}}{{if .Command}}> {{.Command}}\n{{else}}{{.Text}}\n{{end}}{{end}}" +
			"{{range $i, $f := .Facts}}{{if $i}}; {{end}}{{$f.Label}}={{$f.Value}}{{end}}\n",
		"WorkloadEnding.en.html": "<!DOCTYPE html><p title=\"{{.Workload}}\">{{.Workload}}: {{.Deadline.Local}}</p>",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range Examples() {
		if l.Notice.Spec.Kind != v1alpha1.NoticeWorkloadEnding {
			continue
		}
		plain := mustCompose(t, l)
		l.Templates = templates
		m := mustCompose(t, l)
		if languageOf(l.Notice) == v1alpha1.LanguageGerman {
			if m.Text != plain.Text || m.HTML != plain.HTML || m.Subject != plain.Subject {
				t.Errorf("%s: a built-in text changed", l.Notice.Name)
			}
			continue
		}
		if !strings.HasPrefix(m.Subject, "Mind ") || !strings.Contains(m.Text, "\n> sluice extend ") ||
			!strings.HasPrefix(m.HTML, "<!DOCTYPE html><p title=") {
			t.Errorf("%s: %q\n%s\n%s", l.Notice.Name, m.Subject, m.Text, m.HTML)
		}
		l.Notice.Spec.Subject.Name = `"><script>x</script>`
		m = mustCompose(t, l)
		parseMail(t, m.Bytes)
		if strings.Contains(m.HTML, "<script") {
			t.Errorf("HTML was injected: %s", m.HTML)
		}
	}
}

func TestParseTemplatesInvalid(t *testing.T) {
	const good = "{{.First}}"
	for name, test := range map[string]struct{ key, text, want string }{
		"unknown kind":     {"Nonsense.de.txt", good, `template "Nonsense.de.txt": its name must be <Kind>.<de|en>.<subject|txt|html>`},
		"unknown language": {"WorkloadEnding.fr.txt", good, "its name must be"},
		"unknown form":     {"WorkloadEnding.de.md", good, "its name must be"},
		"no form":          {"WorkloadEnding", good, "its name must be"},
		"key with a line":  {"Workload\nEnding.de.txt", good, "its name must be"},
		"syntax":           {"WorkloadEnding.de.txt", "one\ntwo {{.First", "template: WorkloadEnding.de.txt:2:"},
		"unknown field":    {"WorkloadEnding.de.txt", "{{.First}}\n\n{{.Deadlin}}", "WorkloadEnding.de.txt:3:2: there is no field .Deadlin"},
		"field of a branch": {
			"WorkloadStopped.de.txt", "{{.First}}\n{{if .Canceled}}{{.Nope}}{{end}}", "WorkloadStopped.de.txt:2:18: there is no field .Nope",
		},
		"field of a list": {
			"WorkloadEnding.de.txt", "{{.First}}{{range .Facts}}{{.Nope}}{{end}}",
			"there is no field .Nope; available are .Label .Padded .Value",
		},
		"field of a with": {
			"WorkloadEnding.de.txt", "{{.First}}{{with .Deadline}}{{.Nope}}{{end}}", "there is no field .Nope; available are .Date",
		},
		"field of a variable": {"WorkloadEnding.de.txt", "{{.First}}{{$d := .Deadline}}{{$d.Nope}}", "there is no field .Nope"},
		"field of a string":   {"WorkloadEnding.de.txt", "{{.First.Nope}}", "has no fields"},
		"no deadline":         {"WorkloadEnding.de.txt", "{{.Greeting}}", "WorkloadEnding.de.txt: it does not show the deadline"},
		"no deadline in HTML": {"WorkloadEnding.de.html", "<p>{{.Title}}</p>", "WorkloadEnding.de.html: it does not show the deadline"},
		"an hour, no day":     {"WorkloadEnding.de.txt", "{{.Deadline.Time}}", "it does not show the deadline"},
		"empty":               {"WorkloadEnding.de.txt", " \n", "it is empty"},
		"no output":           {"WorkloadStopped.de.txt", "{{if .Canceled}}{{.First}}{{end}}", "its output is empty for the example"},
		"empty subject":       {"WorkloadStopped.de.subject", "{{if .Canceled}}{{.Title}}{{end}}", "its output is empty for the example"},
		"function":            {"WorkloadEnding.de.txt", `{{.First}}{{printf "%100000000s" "x"}}`, "the function printf is not allowed"},
		"call":                {"WorkloadEnding.de.txt", `{{.First}}{{call .First}}`, "the function call is not allowed"},
		"piped function":      {"WorkloadEnding.de.txt", `{{.First | js}}`, "the function js is not allowed"},
		"own function":        {"WorkloadEnding.de.txt", `{{wrap "" .First}}`, `function "wrap" not defined`},
		"definition":          {"WorkloadEnding.de.txt", `{{define "x"}}{{end}}{{.First}}`, `it defines "x"`},
		"itself":              {"WorkloadEnding.de.txt", `{{.First}}{{template "WorkloadEnding.de.txt" .}}`, "it calls another template"},
		"counting":            {"WorkloadEnding.de.txt", `{{.First}}{{range 1000000000000}}{{end}}`, "is no list of the page"},
		"counting by name":    {"WorkloadEnding.de.txt", `{{.First}}{{$n := 1000000000000}}{{range $n}}{{end}}`, "is no list of the page"},
		"counting in a with":  {"WorkloadEnding.de.txt", `{{.First}}{{with 1000000000000}}{{range .}}{{end}}{{end}}`, "is no list of the page"},
		"counting, one way": {
			"WorkloadEnding.de.txt", `{{.First}}{{$n := 1000000000000}}{{if .Canceled}}{{$n = .Facts}}{{end}}{{range $n}}{{end}}`,
			"is no list of the page",
		},
		"counting, shadowed": {
			"WorkloadEnding.de.txt", `{{.First}}{{$n := 1000000000000}}{{if .Canceled}}{{$n := .Facts}}{{end}}{{range $n}}{{end}}`,
			"is no list of the page",
		},
		"counting, by a dot": {
			"WorkloadEnding.de.txt", `{{.First}}{{$n := .Facts}}{{if .Title}}{{$n = 1000000000000}}{{end}}{{with $n}}{{range .}}{{end}}{{end}}`,
			"is no list of the page",
		},
		"counting, in braces": {
			"WorkloadEnding.de.txt", `{{.First}}{{$n := .Facts}}{{$n = 1000000000000}}{{with ($n)}}{{range .}}{{end}}{{end}}`,
			"is no list of the page",
		},
		"counting a length": {"WorkloadEnding.de.txt", `{{.First}}{{range (len .First)}}{{end}}`, "is no list of the page"},
		"deep": {
			"WorkloadEnding.de.txt", `{{.First}}{{range .Facts}}{{range $.Facts}}{{range $.Facts}}x{{end}}{{end}}{{end}}`, "more than 2 ranges",
		},
		"large": {"WorkloadEnding.de.txt", `{{.First}}` + strings.Repeat("x", maxTemplateBytes), "at most 65536 are allowed"},
		"too much": {
			"WorkloadEnding.de.txt", `{{.First}}{{range .Facts}}{{range $.Facts}}` + strings.Repeat("x", 60000) + `{{end}}{{end}}`,
			"template WorkloadEnding.de.txt: its output exceeds 256 KiB",
		},
		"HTML context": {"WorkloadEnding.de.html", `<p {{.First}}"`, "WorkloadEnding.de.html"},
		"one of two":   {"WorkloadIdle.de.txt", `{{.Greeting}}`, "WorkloadIdle.de.txt: it does not show the deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"WorkloadEnding.en.txt": good, test.key: test.text}
			templates, err := ParseTemplates(files)
			if err == nil || templates != nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestParseTemplatesEveryKey accepts a minimal template for each key.
func TestParseTemplatesEveryKey(t *testing.T) {
	files := map[string]string{}
	for k := range noticeContents() {
		for form, text := range map[string]string{
			formSubject: "{{.Title}}", formText: "{{.First}}{{with .Deadline}} {{.Local}}{{end}}",
			formHTML: "<p>{{.First}}{{with .Deadline}} {{.At}}{{end}}</p>",
		} {
			files[templateKey(k.kind, k.language, form)] = text
		}
	}
	templates, err := ParseTemplates(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range Examples() {
		l.Templates = templates
		parseMail(t, mustCompose(t, l).Bytes)
	}
	if _, err := ParseTemplates(nil); err != nil {
		t.Errorf("no templates: %v", err)
	}
}

func FuzzParseTemplates(f *testing.F) {
	f.Add("{{.First}}")
	f.Add("{{range $i, $f := .Facts}}{{$f.Label}}{{else}}x{{end}}{{.First}}")
	f.Add("{{with $x := .Deadline}}{{$x.Local}}{{else with .Anchor}}{{.}}{{end}}")
	f.Add("{{if and .Deadline (gt (len .Facts) 2)}}{{.First}}{{break}}{{end}}")
	f.Fuzz(func(t *testing.T, text string) {
		for _, end := range []string{"txt", "html"} {
			templates, err := ParseTemplates(map[string]string{"WorkloadEnding.en." + end: text})
			if err != nil {
				continue
			}
			l := Examples()[1]
			l.Templates = templates
			parseMail(t, mustCompose(t, l).Bytes)
		}
	})
}
