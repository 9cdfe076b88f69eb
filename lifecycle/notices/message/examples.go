// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"net/mail"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// noon is when the examples are written: some minutes past noon in Berlin.
var noon = time.Date(2026, 11, 22, 11, 14, 3, 0, time.UTC)

// example is one, in both languages.
type example struct {
	kind    v1alpha1.NoticeKind
	variant string
	subject v1alpha1.ObjectReference
	// ahead is how long before the deadline it is written; zero for no deadline.
	deadline time.Time
	inputs   map[string]string
	carried  []example
}

// Examples are letters of every kind, in German and English, one for each thing that a
// kind may say. Their Notices are named <kind>-<variant>.<language>.
func Examples() (letters []Letter) {
	for _, e := range examples() {
		for _, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
			l := Letter{
				Notice: e.notice(language), Sequence: 2,
				From: mail.Address{Name: "Sluice", Address: "sluice@gpu.example.org"}, ReplyTo: "helpdesk@example.org", Domain: "gpu.example.org",
				Cancelled: e.variant == "exempt",
			}
			for _, c := range e.carried {
				l.Carried = append(l.Carried, c.notice(language))
			}
			letters = append(letters, l)
		}
	}
	return letters
}

func (e example) notice(language v1alpha1.Language) *v1alpha1.Notice {
	name := strings.ToLower(string(e.kind)) + "-" + e.variant + "." + string(language)
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon)},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Anna Müller", Email: "anna.mueller@example.org"},
				Language: language, TimeZone: "Europe/Berlin",
			},
			Kind: e.kind, DueAt: metav1.NewTime(noon.Add(-3 * time.Second)), Inputs: e.inputs,
		},
	}
	if e.kind == v1alpha1.NoticeDigest {
		date := period.DateOf(noon, time.UTC)
		n.Spec.Date = &date
	}
	if !unnamed[e.kind] {
		subject := e.subject
		n.Spec.Subject = &subject
	}
	if !e.deadline.IsZero() {
		n.Spec.Deadline = &metav1.Time{Time: e.deadline}
	}
	return n
}

func object(apiVersion, kind, namespace, name string) v1alpha1.ObjectReference {
	return v1alpha1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

// with are inputs added to others.
func with(base map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for k, v := range base {
		all[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}
