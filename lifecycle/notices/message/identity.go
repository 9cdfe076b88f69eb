// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// MessageID is the Message-ID of a Notice's mail, with angle brackets: the same at every
// attempt, and another for a Notice that was made anew.
//
//nolint:revive // it is the name of what it returns
func MessageID(notice *v1alpha1.Notice, domain string) string {
	return "<" + hash("notice", notice.Name, string(notice.UID)) + "@" + domain + ">"
}

// thread is the Message-ID of a mail that never was, to which all mails of a subject
// are answers, so that they stand together; empty where there is no subject.
func thread(notice *v1alpha1.Notice, domain string) string {
	if notice.Spec.Subject == nil {
		return ""
	}
	return "<" + identity("thread", notice.Spec.Subject) + "@" + domain + ">"
}

// eventUID is the UID of a subject's appointment.
func eventUID(notice *v1alpha1.Notice, domain string) string {
	return identity("deadline", notice.Spec.Subject) + "@" + domain
}

// identity tells an object from all others, those of the same name before and after
// it included. The version of its API is no part of it.
func identity(what string, o *v1alpha1.ObjectReference) string {
	group, _, found := strings.Cut(o.APIVersion, "/")
	if !found {
		group = ""
	}
	return hash(what, group, o.Kind, o.Namespace, o.Name, string(o.UID))
}

// boundary is what separates the parts. No text that is quoted-printable has "=_".
func boundary(messageID, which string) string {
	return "=_" + which + "_" + hash("boundary", messageID, which)
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
