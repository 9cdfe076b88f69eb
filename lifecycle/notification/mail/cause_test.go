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

// exampleByName returns the example of a Notice's name, which the test may change.
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

// TestLocalizedCause localizes codes in both languages and keeps other texts unchanged.
func TestLocalizedCause(t *testing.T) {
	for name, test := range map[string]struct {
		inputs          map[string]string
		german, english string
	}{
		"no reason": {nil, "", ""},
		"nothing granted": {
			map[string]string{InputCause: CauseNoSelfService},
			"Die Abteilung entscheidet über jeden Antrag einzeln",
			"your department decides on each request",
		},
		"too long": {
			map[string]string{InputCause: CauseExtensionTooLong, InputMaxDuration: "24h"},
			"Ohne Einzelentscheidung gewährt die Abteilung höchstens 24 Stunden auf einmal",
			"without a decision your department grants at most 24 hours at once",
		},
		"too long, unknown maximum": {
			map[string]string{InputCause: CauseExtensionTooLong, InputMaxDuration: "P1D"},
			"So viel Zeit auf einmal gewährt die Abteilung nicht ohne Einzelentscheidung",
			"your department does not grant that much time at once without a decision",
		},
		"used up": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "2", InputAllowed: "2", InputWindow: "30d"},
			"Ohne Einzelentscheidung gewährt die Abteilung 2 Verlängerungen innerhalb von 30 Tagen; davon genutzt: 2",
			"without a decision your department grants 2 extensions within 30 days; used so far: 2",
		},
		"one, used up": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "1", InputAllowed: "1", InputWindow: "24h"},
			"Ohne Einzelentscheidung gewährt die Abteilung eine Verlängerung innerhalb von 24 Stunden; davon genutzt: 1",
			"without a decision your department grants 1 extension within 24 hours; used so far: 1",
		},
		"used up, invalid numbers": {
			map[string]string{InputCause: CauseSelfServiceLimitReached, InputUsed: "1e3", InputAllowed: "-2", InputWindow: "30d"},
			"Die Verlängerungen ohne Einzelentscheidung sind ausgeschöpft", "the extensions without a decision are used up",
		},
		"gone": {map[string]string{InputCause: CauseWorkloadNotFound}, "Der Workload existiert nicht mehr", "the workload no longer exists"},
		"too often": {
			map[string]string{InputCause: CauseExtensionLimitReached, InputUsed: "64"},
			"Der Workload wurde bereits 64-mal verlängert; mehr ist nicht möglich", "the workload was extended 64 times, which is the maximum",
		},
		"not renewable": {
			map[string]string{InputCause: CauseNotRenewable},
			"Das Projekt läuft nicht ab oder wurde inzwischen bereits verlängert", "the project does not expire, or was renewed meanwhile",
		},
		"a renewal before": {
			map[string]string{InputCause: CauseRenewalPending},
			"Für das Projekt wurde zuvor schon eine Verlängerung beantragt", "another renewal of the project was requested before",
		},
		"no owner": {
			map[string]string{InputCause: CauseRequesterNotOwner},
			"Nur wer für das Projekt zuständig ist, kann es verlängern", "only an owner of the project can renew it",
		},
		"a sentence of an older version": {
			map[string]string{InputCause: "the department grants 2 within 30d by itself, and 2 were"},
			"the department grants 2 within 30d by itself, and 2 were", "the department grants 2 within 30d by itself, and 2 were",
		},
		"a code of a newer version": {map[string]string{InputCause: "FullMoon"}, "FullMoon", "FullMoon"},
	} {
		t.Run(name, func(t *testing.T) {
			var got [2]string
			for i, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
				n := &v1alpha1.Notice{Spec: v1alpha1.NoticeSpec{Kind: v1alpha1.NoticeExtensionRequested, Inputs: test.inputs}}
				n.Spec.Recipient.Language = language
				p := newTemplateData(n, newTimeFormatter(n))
				got[i] = p.Cause
			}
			if diff := cmp.Diff([2]string{test.german, test.english}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestGermanMailsContainNoEnglish: German mails contain no code and no English text of Sluice.
func TestGermanMailsContainNoEnglish(t *testing.T) {
	for _, l := range Examples() {
		if languageOf(l.Notice) != v1alpha1.LanguageGerman {
			continue
		}
		if l.Notice.Spec.Inputs[InputReason] != "" { // the user's own words
			l.Notice.Spec.Inputs = withInputs(l.Notice.Spec.Inputs, InputReason, "…", InputMessage, "…")
		}
		m := mustCompose(t, l)
		for _, word := range []string{" the ", " were ", " within ", "LimitReached", "WorkloadNotFound", "ExtensionLimitReached", "Job=", " volumes"} {
			if strings.Contains(m.Subject+"\n"+m.Text, word) {
				t.Errorf("%s has %q:\n%s", l.Notice.Name, word, m.Text)
			}
		}
	}
}

// TestComposeNoticesOfOlderVersions composes Notices with sentences as causes and with hours by week.
func TestComposeNoticesOfOlderVersions(t *testing.T) {
	for called, test := range map[string]struct {
		inputs map[string]string
		want   []string
	}{
		"extensionrequested-workload.de": {
			map[string]string{InputCause: "the department grants nothing by itself"},
			[]string{"eine Entscheidung nötig ist: the department grants nothing by itself."},
		},
		"extensiondecided-gone.en": {
			map[string]string{InputCause: "there is no such workload any more"},
			[]string{"Why the approval did not take effect: there is no such workload any more."},
		},
		"extensiondecided-selfservice.de": {
			map[string]string{InputMessage: "granted by the department's self-service: 1 of 2 within 30d", InputUsed: ""},
			[]string{"„granted by the department's self-service: 1 of 2 within 30d“", "ohne Einzelentscheidung."},
		},
		"projectdeleted-deleted.en": {
			map[string]string{InputRemoved: "3 Jobs, 2 RoleBindings", InputKept: "namespace x with 2 volumes"},
			[]string{"Deleted: 3 Jobs, 2 RoleBindings. Kept: namespace x with 2 volumes."},
		},
		"weeklysummary-week.en": {
			map[string]string{InputMonth: "", InputMonthUntil: "", InputGPUHours: "1234.5", InputGPUHoursBefore: "987.0"},
			[]string{
				"Department h2-students used 1234.5 GPU hours from Monday, 9 November 2026 to Sunday, 15 November 2026.",
				"GPU hours the week before:", "GPU hours: 812.0",
			},
		},
	} {
		t.Run(called, func(t *testing.T) {
			l := exampleByName(t, called)
			for key, value := range test.inputs {
				l.Notice.Spec.Inputs[key] = value
			}
			m := mustCompose(t, l)
			checkMail(t, l, m)
			text := strings.Join(strings.Fields(m.Text), " ")
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, m.Text)
				}
			}
		})
	}
}

// TestTestMailOmitsInputs: the mail of a Test contains none of the Notice's inputs.
func TestTestMailOmitsInputs(t *testing.T) {
	l := exampleByName(t, "test-requested.en")
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

// TestComposeInvalidTimeZone: an invalid zone falls back to UTC.
func TestComposeInvalidTimeZone(t *testing.T) {
	for _, zone := range []string{"", "Local", "Europe/Nowhere", "../etc/passwd", "/etc/localtime"} {
		l := exampleByName(t, "workloadending-pod.en")
		l.Notice.Spec.Recipient.TimeZone = zone
		if m := mustCompose(t, l); !strings.Contains(m.Text, "11:44 UTC") {
			t.Errorf("%q:\n%s", zone, m.Text)
		}
	}
}

// TestComposeInvalidNumbers: invalid numbers are not shown.
func TestComposeInvalidNumbers(t *testing.T) {
	for _, figure := range []string{"NaN", "Inf", "-1", "1e300", "0x10", "1_000", strings.Repeat("9", 400)} {
		l := exampleByName(t, "weeklysummary-week.en")
		l.Notice.Spec.Inputs[InputGPUHours], l.Notice.Spec.Inputs[InputProjects] = figure, FormatProjectWeeks(
			[]ProjectWeek{{Project: "p", GPUHours: figure}},
		)
		if m := mustCompose(t, l); strings.Contains(m.Text+m.Subject, figure) {
			t.Errorf("%q is shown:\n%s", figure, m.Text)
		}
		l = exampleByName(t, "shareexceeded-warned.en")
		l.Notice.Spec.Inputs[InputMemoryMiB] = figure
		if m := mustCompose(t, l); strings.Contains(m.Text, "NaN GiB") || strings.Contains(m.Text, "000 GiB") {
			t.Errorf("%q is shown as memory:\n%s", figure, m.Text)
		}
	}
}
