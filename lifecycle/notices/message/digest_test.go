// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func digest(t *testing.T) Letter {
	t.Helper()
	all := Examples()
	i := slices.IndexFunc(all, func(l Letter) bool { return l.Notice.Name == "digest-two.en" })
	if i < 0 {
		t.Fatal("there is no such example")
	}
	return all[i]
}

// TestLongDigest: whoever answers for many projects hears of each.
func TestLongDigest(t *testing.T) {
	l := digest(t)
	pattern := l.Carried[1]
	l.Carried = nil
	for i := range 600 {
		n := pattern.DeepCopy()
		n.Name = fmt.Sprintf("carried-%03d", i)
		n.Spec.Subject.Name, n.Spec.Subject.UID = fmt.Sprintf("project-%03d", i), ""
		n.Spec.Inputs[InputProject] = n.Spec.Subject.Name
		n.Spec.Deadline = &metav1.Time{Time: noon.Add(time.Duration(600-i) * time.Hour)}
		l.Carried = append(l.Carried, n)
	}
	before := slices.Clone(l.Carried)
	m := compose(t, l)
	r := check(t, l, m)
	if !slices.Equal(before, l.Carried) {
		t.Error("the letter was changed")
	}
	for i := range 600 {
		title := fmt.Sprintf("Project project-%03d is about to end", i)
		if !strings.Contains(m.Text, title) || !strings.Contains(m.HTML, title) || !strings.Contains(r.parts["text/calendar"], title) {
			t.Fatalf("%q is missing", title)
		}
	}
	if first, last := strings.Index(m.Text, "project-599"), strings.Index(m.Text, "project-000"); first > last {
		t.Error("what is due first does not come first")
	}
	if want := "600 notices, the first for Sun 22 Nov, 13:14 CET: Project project-599 is about to end"; m.Subject != want {
		t.Errorf("subject %q, want %q", m.Subject, want)
	}
}

func TestSequencesOfADigest(t *testing.T) {
	l := digest(t)
	l.Sequence, l.Sequences = 1, map[string]int{l.Carried[0].Name: 7}
	got := slices.DeleteFunc(calendar(t, l), func(s string) bool { return !strings.HasPrefix(s, "SEQUENCE:") })
	if want := []string{"SEQUENCE:1", "SEQUENCE:7"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDigestWithoutDates carries what is no warning.
func TestDigestWithoutDates(t *testing.T) {
	l := digest(t)
	renewed := l.Carried[0].DeepCopy()
	renewed.Spec.Kind, renewed.Spec.Deadline = v1alpha1.NoticeProjectRenewed, nil
	l.Carried = []*v1alpha1.Notice{renewed}
	m := compose(t, l)
	r := check(t, l, m)
	if r.parts["text/calendar"] != "" || m.Subject != "Project protein-folding is valid without an end" {
		t.Errorf("%q with %q", m.Subject, r.parts["text/calendar"])
	}
}
