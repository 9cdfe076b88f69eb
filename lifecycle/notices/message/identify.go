// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
)

// unknown stands where the Notice does not name what every Notice should.
const unknown = "–"

// identify names what the mail speaks of, to people and in commands.
func (p *Page) identify(n *v1alpha1.Notice) {
	in := n.Spec.Inputs
	p.Project, p.Department = p.In[InputProject], p.In[InputDepartment]
	namespace := in[InputNamespace]
	if s := n.Spec.Subject; s != nil {
		p.Name, p.Object = name(s.Name), argument(s.Name, "NAME")
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
		p.Workload = name(kind + " " + target)
		p.Target = argument(strings.ToLower(kind), "KIND") + "/" + argument(target, "NAME")
		p.restart(s, kind, target)
	}
	if namespace == "" {
		namespace = in[InputProject]
	}
	if s := n.Spec.Subject; s != nil {
		p.Department = cmp.Or(p.Department, unknown)
		if s.Kind != "Department" {
			p.Project = cmp.Or(p.Project, name(namespace), unknown)
		}
	}
	p.Namespace, p.Place, p.Tenant = name(namespace), argument(namespace, "NAMESPACE"), argument(in[InputProject], "PROJECT")
}

// restart says how the workload is started again.
func (p *Page) restart(s *v1alpha1.ObjectReference, kind, target string) {
	group, _, found := strings.Cut(s.APIVersion, "/")
	if !found {
		group = ""
	}
	row, ok := kinds.Of(schema.GroupKind{Group: group, Kind: kind})
	if !ok || s.Kind == "Extension" {
		return
	}
	p.Start = row.StartCommand(argument(s.Namespace, "NAMESPACE"), argument(target, "NAME"), 1)
	p.Scaled, p.Deleted = row.Verb.Form == kinds.FormReplicas, row.Verb.Form == kinds.FormDelete
}
