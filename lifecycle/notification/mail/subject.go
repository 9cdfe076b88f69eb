// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// unknownPlaceholder stands where the Notice does not name what every Notice should.
const unknownPlaceholder = "–"

// setSubject names what the mail speaks of, to people and in commands.
func (p *TemplateData) setSubject(n *v1alpha1.Notice) {
	in := n.Spec.Inputs
	p.Project, p.Department = p.In[InputProject], p.In[InputDepartment]
	namespace := in[InputNamespace]
	if s := n.Spec.Subject; s != nil {
		p.Name, p.Object = displayName(s.Name), commandArgument(s.Name, "NAME")
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		kind, target := s.Kind, s.Name
		switch kind {
		case "Project":
			if p.Project == "" {
				p.Project = p.Name
			}
			in = map[string]string{InputProject: s.Name}
		case "Department":
			if p.Department == "" {
				p.Department = p.Name
			}
		case "Extension":
			kind, target = in[InputTargetKind], in[InputTargetName]
			p.Renewal = kind == "Project"
		}
		p.Workload = displayName(kind + " " + target)
		p.Target = commandArgument(strings.ToLower(kind), "KIND") + "/" + commandArgument(target, "NAME")
		p.setStartCommand(s, kind, target)
	}
	if namespace == "" {
		namespace = in[InputProject]
	}
	if s := n.Spec.Subject; s != nil {
		p.Department = cmp.Or(p.Department, unknownPlaceholder)
		if s.Kind != "Department" {
			p.Project = cmp.Or(p.Project, displayName(namespace), unknownPlaceholder)
		}
	}
	p.Namespace, p.Place, p.Tenant = displayName(namespace), commandArgument(namespace, "NAMESPACE"), commandArgument(in[InputProject], "PROJECT")
}

// setStartCommand says how the workload is started again.
func (p *TemplateData) setStartCommand(s *v1alpha1.ObjectReference, kind, target string) {
	group, _, found := strings.Cut(s.APIVersion, "/")
	if !found {
		group = ""
	}
	row, ok := workloadkind.Lookup(schema.GroupKind{Group: group, Kind: kind})
	if !ok || s.Kind == "Extension" {
		return
	}
	p.Start = row.StartCommand(commandArgument(s.Namespace, "NAMESPACE"), commandArgument(target, "NAME"), 1)
	p.Scaled, p.Deleted = row.StopAction.Method == workloadkind.StopByScaling, row.StopAction.Method == workloadkind.StopByDeletion
}

// MessageID is the Message-ID of a Notice's mail, with angle brackets: the same at every
// attempt, and another for a Notice that was made anew.
//
//nolint:revive // it is the name of what it returns
func MessageID(notice *v1alpha1.Notice, domain string) string {
	return "<" + hashStrings("notice", notice.Name, string(notice.UID)) + "@" + domain + ">"
}

// threadID is the Message-ID of a mail that never was, to which all mails of a subject
// are answers, so that they stand together; empty where there is no subject.
func threadID(notice *v1alpha1.Notice, domain string) string {
	if notice.Spec.Subject == nil {
		return ""
	}
	return "<" + subjectHash("thread", notice.Spec.Subject) + "@" + domain + ">"
}

// eventUID is the UID of a subject's appointment.
func eventUID(notice *v1alpha1.Notice, domain string) string {
	return subjectHash("deadline", notice.Spec.Subject) + "@" + domain
}

// subjectHash tells an object from all others, those of the same name before and after
// it included. The version of its API is no part of it.
func subjectHash(what string, o *v1alpha1.ObjectReference) string {
	group, _, found := strings.Cut(o.APIVersion, "/")
	if !found {
		group = ""
	}
	return hashStrings(what, group, o.Kind, o.Namespace, o.Name, string(o.UID))
}

// partBoundary is what separates the parts. No text that is quoted-printable has "=_".
func partBoundary(messageID, which string) string {
	return "=_" + which + "_" + hashStrings("boundary", messageID, which)
}

func hashStrings(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
