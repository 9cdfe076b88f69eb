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

// unknownPlaceholder replaces a missing name.
const unknownPlaceholder = "–"

// setSubject sets the names of the subject, for texts and commands.
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
	p.Namespace, p.Place, p.Tenant = displayName(
		namespace,
	), commandArgument(
		namespace, "NAMESPACE",
	), commandArgument(
		in[InputProject], "PROJECT",
	)
}

// setStartCommand sets the command that starts the workload again.
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

// MessageID returns the Message-ID of a Notice's mail, with angle brackets: the same at each
// attempt, and a different one for a recreated Notice.
func MessageID(notice *v1alpha1.Notice, domain string) string {
	return "<" + hashStrings("notice", notice.Name, string(notice.UID)) + "@" + domain + ">"
}

// threadID returns a virtual Message-ID that all mails of a subject reference, so mail clients show
// them as a thread; empty without a subject.
func threadID(notice *v1alpha1.Notice, domain string) string {
	if notice.Spec.Subject == nil {
		return ""
	}
	return "<" + subjectHash("thread", notice.Spec.Subject) + "@" + domain + ">"
}

// eventUID returns the UID of a subject's appointment.
func eventUID(notice *v1alpha1.Notice, domain string) string {
	return subjectHash("deadline", notice.Spec.Subject) + "@" + domain
}

// subjectHash identifies an object, also among successive objects of the same name. It does not
// depend on the API version.
func subjectHash(what string, o *v1alpha1.ObjectReference) string {
	group, _, found := strings.Cut(o.APIVersion, "/")
	if !found {
		group = ""
	}
	return hashStrings(what, group, o.Kind, o.Namespace, o.Name, string(o.UID))
}

// partBoundary returns a multipart boundary. Quoted-printable text cannot contain "=_".
func partBoundary(messageID, which string) string {
	return "=_" + which + "_" + hashStrings("boundary", messageID, which)
}

func hashStrings(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
