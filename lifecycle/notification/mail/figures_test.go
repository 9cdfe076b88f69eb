// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// figureUnits holds the units in which the figures are durations, by their suffix.
var figureUnits = map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": oneDay}

var (
	countInput    = regexp.MustCompile(`^[0-9]+$`)
	decimalInput  = regexp.MustCompile(`^[0-9]+[.][0-9]+$`)
	durationInput = regexp.MustCompile(`^[0-9]+[mhd]$`)
)

// withFigure returns the request with n as each of its numbers, and n units as each duration and until
// each later time.
func withFigure(l ComposeRequest, n int, unit string) ComposeRequest {
	p := &TemplateData{Kind: string(l.Notice.Spec.Kind)}
	l.Notice = l.Notice.DeepCopy()
	spec := &l.Notice.Spec
	later := exampleTime.Add(time.Duration(n) * figureUnits[unit])
	if spec.Deadline != nil && spec.Deadline.After(exampleTime) {
		spec.Deadline = &metav1.Time{Time: later}
	}
	for key, value := range spec.Inputs {
		at, err := time.Parse(time.RFC3339, value)
		counts, errCounts := ParseCounts(value)
		switch {
		case err == nil && at.After(exampleTime):
			value = formatTimestamp(later)
		case key == InputProjects:
			value = withFigureRows(n)
		case errCounts == nil:
			for i := range counts {
				counts[i].N = n
			}
			value = FormatCounts(counts)
		case key == InputAccumulatedSeconds:
			value = strconv.Itoa(int(later.Sub(exampleTime).Seconds()))
		case p.isGPUQuantity(key), countInput.MatchString(value):
			value = strconv.Itoa(n)
		case decimalInput.MatchString(value):
			value = strconv.Itoa(n) + ".0"
		case durationInput.MatchString(value):
			value = strconv.Itoa(n) + unit
		}
		spec.Inputs[key] = value
	}
	var carried []*v1alpha1.Notice
	for i, c := range l.Carried {
		if i < max(1, n) { // there is no digest of nothing
			carried = append(carried, withFigure(ComposeRequest{Notice: c}, n, unit).Notice)
		}
	}
	l.Carried = carried
	return l
}

// withFigureRows returns n more rows than a WeeklySummary shows.
func withFigureRows(n int) string {
	var rows []ProjectWeek
	for i := range maxSummaryRows + n {
		rows = append(rows, ProjectWeek{Project: fmt.Sprintf("course-%d", i), GPUHours: strconv.Itoa(n) + ".0", Stopped: n})
	}
	return FormatProjectWeeks(rows)
}

// sentences returns the texts of a mail that Sluice wrote, without commands.
func sentences(p *TemplateData, m *Message) []string {
	all := append([]string{m.Subject, p.Title, p.First}, p.Why...)
	for _, step := range p.How {
		all = append(all, step.Text)
	}
	for _, item := range p.Items {
		all = append(all, item.Title, item.Text)
	}
	if p.Anchor != nil {
		all = append(all, p.AnchorLabel+": "+strings.TrimSuffix(p.Anchor.Local+", "+p.Anchor.In, ", "))
	}
	for _, fact := range p.Facts {
		all = append(all, fact.Label+": "+fact.Value)
	}
	return append(append(all, p.Columns...), p.More, p.Audience, p.Words.Sender)
}

// userTexts replaces texts of people in the examples with one that is no word.
func userTexts(l ComposeRequest) ComposeRequest {
	for _, key := range []string{InputReason, InputMessage} {
		if l.Notice.Spec.Inputs[key] != "" {
			l.Notice.Spec.Inputs[key] = "…"
		}
	}
	return l
}

const (
	germanNouns  = "Tage|Tagen|Stunden|Minuten|Sekunden|Workloads|Anträge|Verlängerungen|Hinweise|Projekte|Jobs|RoleBindings|Volumes"
	englishNouns = "days|hours|minutes|seconds|workloads|requests|extensions|notices|projects|times|volumes"
)

// badPatterns holds what no text of Sluice contains, in any language.
var badPatterns = map[string]*regexp.Regexp{
	"a plural after 1": regexp.MustCompile(
		`(^|[^0-9.,:])1 (weitere |laufenden |more |GPU |GPU-)?(GPUs|Namespaces|` + germanNouns + `|` + englishNouns + `)\b`,
	),
	"0 of something": regexp.MustCompile(`(^|[^0-9.,:])0([.,]0)? (GPU |GPU-)?(` + germanNouns + `|` + englishNouns + `)\b`),
	"a singular after 2": regexp.MustCompile(
		`(^|[^0-9.,:])2 (Tag|Stunde|Minute|Sekunde|GPU|Workload|Antrag|day|hour|minute|second|workload|request)( |[.]|,|$)`,
	),
	"empty parentheses":  regexp.MustCompile(`\(\s*\)|„\s*“|“\s*”`),
	"a gap":              regexp.MustCompile(`\s\s|\( |\s[).,;:?]|^\s|\s$`),
	"double punctuation": regexp.MustCompile(`[.][.;:]|,[,.;:]|[;:][.,;:]|[?!][.,;:]`),
	"no space":           regexp.MustCompile(`[\pL)][.;,]\p{Lu}`),
	"a placeholder":      regexp.MustCompile(`%[sd!]|<no value>|<nil>|PROJECT|DEPARTMENT|KIND|NAMESPACE`),
}

// foreignWords holds words of the other language.
var foreignWords = map[v1alpha1.Language]*regexp.Regexp{
	v1alpha1.LanguageGerman: regexp.MustCompile(
		`(?i)\b(the|of|and|is|were|will|be|for|with|within|your?|to|from|at|until|project|department|hours?|days?|minutes|` +
			`extension|request(ed)?|stopped|message|reason|quota|node pool|owners?|contacts?|mails?|testmail|mute|CET|CEST)\b`,
	),
	v1alpha1.LanguageEnglish: regexp.MustCompile(
		`(?i)\b(der|das|den|dem|und|ist|wird|werden|wurden?|für|bis|am|um|projekte?|abteilung|stunden?|tage?n?|minuten|Uhr|` +
			`MEZ|MESZ|antrag|anträge|gestoppt|verlängerung(en)?|nachricht|knotengruppe|Sie|Ihre?)\b`,
	),
}

// informalAddress holds words that German mails do not use: they address the recipient as "Sie".
var informalAddress = regexp.MustCompile(`(?i)\b(du|dir|dich|dein\w*|euch|euer|eure\w*)\b`)

// TestTextsWithFigures: each text reads well with 0, 1 and 2 as its figures, in each unit of time. The
// golden files show the texts that depend on figures, for reading aloud.
func TestTextsWithFigures(t *testing.T) {
	texts := map[v1alpha1.Language]*strings.Builder{v1alpha1.LanguageGerman: {}, v1alpha1.LanguageEnglish: {}}
	for _, example := range Examples() {
		language := languageOf(example.Notice)
		var shown [3][]string
		for n := range shown {
			for unit := range figureUnits {
				l := withFigure(userTexts(example), n, unit)
				p, m := mustRender(t, l)
				for _, text := range sentences(p, m) {
					checkText(t, fmt.Sprintf("%s with %d%s", l.Notice.Name, n, unit), language, text)
				}
				checkBeginning(t, p)
				if unit == "h" {
					shown[n] = sentences(p, m)
				}
			}
		}
		fmt.Fprintf(texts[language], "%s\n\n", example.Notice.Name)
		for n := range shown {
			for _, text := range shown[n] {
				if text != "" && !allContain(shown, text) {
					fmt.Fprintf(texts[language], "%d  %s\n", n, text)
				}
			}
		}
		fmt.Fprintln(texts[language])
	}
	for language, text := range texts {
		compareGolden(t, filepath.Join("testdata", "figures."+string(language)+".txt"), text.String())
	}
}

// TestTextsOfExamples: the texts of all examples pass the same checks, with their own figures and
// without optional inputs.
func TestTextsOfExamples(t *testing.T) {
	for _, example := range Examples() {
		language := languageOf(example.Notice)
		p, m := mustRender(t, userTexts(example))
		for _, text := range sentences(p, m) {
			checkText(t, example.Notice.Name, language, text)
		}
		checkBeginning(t, p)
		if example.Notice.Spec.Kind == v1alpha1.NoticeDigest {
			continue
		}
		example.Notice.Spec.Inputs = nil
		p, m = mustRender(t, example)
		for _, text := range sentences(p, m) {
			checkText(t, example.Notice.Name+" without inputs", language, text)
		}
	}
}

func mustRender(t *testing.T, l ComposeRequest) (*TemplateData, *Message) {
	t.Helper()
	m := mustCompose(t, l)
	l.Carried = sortByDeadline(l.Carried)
	p, err := l.templateData(true)
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

func checkText(t *testing.T, where string, language v1alpha1.Language, text string) {
	t.Helper()
	for what, pattern := range badPatterns {
		if found := pattern.FindString(text); found != "" {
			t.Errorf("%s, %s: %s, %q:\n%s", where, language, what, found, text)
		}
	}
	if found := foreignWords[language].FindString(strings.ReplaceAll(text, "E-Mail", "")); found != "" {
		t.Errorf("%s, %s: a foreign word, %q:\n%s", where, language, found, text)
	}
	if language == v1alpha1.LanguageGerman {
		if found := informalAddress.FindString(text); found != "" {
			t.Errorf("%s: an informal address, %q:\n%s", where, found, text)
		}
	}
}

// checkBeginning: after "Guten Tag ..." a German sentence begins in lower case, unless with a noun. By
// itself a sentence begins with a capital letter.
func checkBeginning(t *testing.T, p *TemplateData) {
	t.Helper()
	first, _ := utf8.DecodeRuneInString(p.First)
	german := p.Language == string(v1alpha1.LanguageGerman)
	if german && unicode.IsUpper(first) && !strings.HasPrefix(p.First, p.Workload+" ") {
		t.Errorf("%s: after the greeting follows a capital letter: %s", p.Kind, p.First)
	}
	alone, _ := utf8.DecodeRuneInString(p.Summary)
	if !unicode.IsUpper(alone) && !strings.HasPrefix(p.Summary, p.In[InputRequestedBy]+" ") {
		t.Errorf("%s: a sentence begins in lower case: %s", p.Kind, p.Summary)
	}
	for _, item := range p.Items {
		if first, _ := utf8.DecodeRuneInString(item.Text); !unicode.IsUpper(first) {
			t.Errorf("an entry of a digest begins in lower case: %s", item.Text)
		}
	}
}

// allContain reports whether a text is in each list.
func allContain(lists [3][]string, text string) bool {
	n := 0
	for _, list := range lists {
		for _, other := range list {
			if other == text {
				n++
				break
			}
		}
	}
	return n == len(lists)
}
