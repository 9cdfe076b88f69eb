// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// exampleByName is a letter by the name of its Notice, which may be changed.
func exampleByName(t *testing.T, called string) ComposeRequest {
	t.Helper()
	for _, l := range Examples() {
		if l.Notice.Name == called {
			return l
		}
	}
	t.Fatalf("there is no example %s", called)
	return ComposeRequest{}
}

// TestLocalizedCause says codes in both languages, and what is no code as it stands.
func TestLocalizedCause(t *testing.T) {
	for name, test := range map[string]struct {
		inputs          map[string]string
		german, english string
	}{
		"no reason":       {nil, "", ""},
		"nothing granted": {map[string]string{InputCause: CauseNoSelfService}, "die Abteilung gewährt nichts von selbst", "the department grants nothing by itself"},
		"too long": {
			map[string]string{InputCause: CauseExtensionTooLong, InputMaxPerRequest: "24h"},
			"die Abteilung gewährt von selbst höchstens 24 Stunden auf einmal", "the department grants at most 24 hours at once by itself",
		},
		"too long, of unknown length": {
			map[string]string{InputCause: CauseExtensionTooLong, InputMaxPerRequest: "P1D"},
			"so viel auf einmal gewährt die Abteilung nicht von selbst", "the department does not grant so much at once by itself",
		},
		"used up": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "2", InputAllowed: "2", InputWindow: "30d"},
			"die Abteilung gewährt 2 Verlängerungen innerhalb von 30 Tagen von selbst, und gewährt sind schon 2",
			"the department grants 2 extensions within 30 days by itself, and 2 were granted already",
		},
		"one, used up": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "1", InputAllowed: "1", InputWindow: "24h"},
			"die Abteilung gewährt 1 Verlängerung innerhalb von 24 Stunden von selbst, und gewährt sind schon 1",
			"the department grants 1 extension within 24 hours by itself, and 1 were granted already",
		},
		"used up, figures that are none": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "1e3", InputAllowed: "-2", InputWindow: "30d"},
			"was die Abteilung von selbst gewährt, ist aufgebraucht", "what the department grants by itself is used up",
		},
		"gone":      {map[string]string{InputCause: CauseWorkloadNotFound}, "den Workload gibt es nicht mehr", "there is no such workload any more"},
		"too often": {map[string]string{InputCause: CauseExtensionLimitReached, InputUsed: "64"}, "der Workload wurde schon 64-mal verlängert, und öfter geht es nicht", "it was extended 64 times already, which is the most"},
		"as recorded of old": {
			map[string]string{InputCause: "the department grants 2 within 30d by itself, and 2 were"},
			"the department grants 2 within 30d by itself, and 2 were", "the department grants 2 within 30d by itself, and 2 were",
		},
		"a code of the future": {map[string]string{InputCause: "FullMoon"}, "FullMoon", "FullMoon"},
	} {
		t.Run(name, func(t *testing.T) {
			var got [2]string
			for i, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
				n := &v1alpha1.Notice{Spec: v1alpha1.NoticeSpec{Kind: v1alpha1.NoticeExtensionRequested, Inputs: test.inputs}}
				n.Spec.Recipient.Language = language
				p, _ := newTemplateData(n)
				got[i] = p.Because
			}
			if diff := cmp.Diff([2]string{test.german, test.english}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestGermanMailsContainNoEnglish: no code and no English sentence of Sluice's own is in one.
func TestGermanMailsContainNoEnglish(t *testing.T) {
	for _, l := range Examples() {
		if languageOf(l.Notice) != v1alpha1.LanguageGerman {
			continue
		}
		if l.Notice.Spec.Inputs[InputReason] != "" { // their own words
			l.Notice.Spec.Inputs = withInputs(l.Notice.Spec.Inputs, InputReason, "…", InputMessage, "…")
		}
		m := mustCompose(t, l)
		for _, word := range []string{" the ", " were ", " within ", "LimitReached", "WorkloadGone", "ExtendedTooOften", "Job=", " volumes"} {
			if strings.Contains(m.Subject+"\n"+m.Text, word) {
				t.Errorf("%s has %q:\n%s", l.Notice.Name, word, m.Text)
			}
		}
	}
}

// TestComposeNoticesOfOlderVersions are read as they were recorded: with sentences, and a week's hours.
func TestComposeNoticesOfOlderVersions(t *testing.T) {
	for called, test := range map[string]struct {
		inputs map[string]string
		want   []string
	}{
		"extensionrequested-workload.de": {map[string]string{InputCause: "the department grants nothing by itself"}, []string{"gewährt wurde: the department grants nothing by itself."}},
		"extensiondecided-gone.en":       {map[string]string{InputCause: "there is no such workload any more"}, []string{"Why it was not carried out: there is no such workload any more."}},
		"extensiondecided-selfservice.de": {
			map[string]string{InputMessage: "granted by the department's self-service: 1 of 2 within 30d", InputUsed: ""},
			[]string{"„granted by the department's self-service: 1 of 2 within 30d“", "von selbst gewährt; niemand"},
		},
		"projectdeleted-deleted.en": {map[string]string{InputRemoved: "3 Jobs, 2 RoleBindings", InputKept: "namespace x with 2 volumes"}, []string{"Taken away: 3 Jobs, 2 RoleBindings. Left in place: namespace x with 2 volumes."}},
		"weeklysummary-week.en": {
			map[string]string{InputMonth: "", InputMonthUntil: "", InputGPUHours: "1234.5", InputGPUHoursBefore: "987.0"},
			[]string{"Department h2-students used 1234.5 GPU hours from Monday, 9 November 2026 to Sunday, 15 November 2026.", "GPU hours the week before:", "GPU hours: 812.0"},
		},
	} {
		t.Run(called, func(t *testing.T) {
			l := exampleByName(t, called)
			for key, value := range test.inputs {
				l.Notice.Spec.Inputs[key] = value
			}
			m := mustCompose(t, l)
			checkMail(t, l, m)
			said := strings.Join(strings.Fields(m.Text), " ")
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in\n%s", want, m.Text)
				}
			}
		})
	}
}

// TestTestMailOmitsInputs: whatever else such a Notice holds is not in its mail.
func TestTestMailOmitsInputs(t *testing.T) {
	l := exampleByName(t, "test-asked.en")
	plain := mustCompose(t, l)
	l.Notice.Spec.Inputs = map[string]string{
		InputRequestedBy: "mallory", InputReason: "mallory", InputMessage: "mallory", InputProject: "mallory", InputDepartment: "mallory",
		InputNamespace: "mallory", InputCause: "mallory", InputRenewedBy: "mallory", InputMonth: "2026-11", InputUntil: "2026-11-22T11:14:00Z",
	}
	l.Notice.Spec.Subject = &v1alpha1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mallory"}
	l.Notice.Spec.Deadline = &metav1.Time{Time: exampleTime.Add(time.Hour)}
	l.Notice.Spec.Recipient.Name = "mallory"
	m := mustCompose(t, l)
	if diff := cmp.Diff(plain.Text, m.Text); diff != "" || plain.HTML != m.HTML || plain.Subject != m.Subject {
		t.Errorf("(-plain +got)\n%s", diff)
	}
	if strings.Contains(string(m.Bytes), "text/calendar") || strings.Contains(string(m.Bytes), "References") {
		t.Errorf("it has an appointment or a thread:\n%s", m.Bytes)
	}
	for _, want := range []string{"sluice@gpu.example.org", "on Sunday, 22 November 2026, at 12:14 CET", "helpdesk@example.org"} {
		if !strings.Contains(strings.Join(strings.Fields(m.Text), " "), want) {
			t.Errorf("it does not say %q:\n%s", want, m.Text)
		}
	}
}

// TestComposeInvalidTimeZone: a warning comes all the same, in UTC.
func TestComposeInvalidTimeZone(t *testing.T) {
	for _, zone := range []string{"", "Local", "Europe/Nowhere", "../etc/passwd", "/etc/localtime"} {
		l := exampleByName(t, "workloadending-pod.en")
		l.Notice.Spec.Recipient.TimeZone = zone
		if m := mustCompose(t, l); !strings.Contains(m.Text, "11:44 UTC") {
			t.Errorf("%q:\n%s", zone, m.Text)
		}
	}
}

// TestComposeInvalidNumbers are not shown as figures.
func TestComposeInvalidNumbers(t *testing.T) {
	for _, figure := range []string{"NaN", "Inf", "-1", "1e300", "0x10", "1_000", strings.Repeat("9", 400)} {
		l := exampleByName(t, "weeklysummary-week.en")
		l.Notice.Spec.Inputs[InputGPUHours], l.Notice.Spec.Inputs[InputProjects] = figure, FormatProjectWeeks([]ProjectWeek{{Project: "p", GPUHours: figure}})
		if m := mustCompose(t, l); strings.Contains(m.Text+m.Subject, figure) {
			t.Errorf("%q is shown:\n%s", figure, m.Text)
		}
		l = exampleByName(t, "overshare-warned.en")
		l.Notice.Spec.Inputs[InputMemoryMiB] = figure
		if m := mustCompose(t, l); strings.Contains(m.Text, "NaN GiB") || strings.Contains(m.Text, "000 GiB") {
			t.Errorf("%q is told as memory:\n%s", figure, m.Text)
		}
	}
}
