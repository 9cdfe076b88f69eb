// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The requests for a host reach the project that has it.
var _ = attacks(
	takenHost("another project's host", `{spec: {rules: [{host: taken.hostile.example}]}}`, "host taken.hostile.example"),
	takenHost("another project's host of a certificate", `{spec: {tls: [{hosts: [taken.hostile.example]}]}}`, "host taken.hostile.example"),
	takenHost("a host below another project's wildcard", `{spec: {rules: [{host: login.pages.hostile.example}]}}`, "host login.pages.hostile.example"),
)

// neighborsHosts are the hosts of another project.
const neighborsHosts = `{spec: {rules: [{host: taken.hostile.example}, {host: "*.pages.hostile.example"}]}}`

// takenHost is a row of an Ingress with a host of another project. The webhook may see the other Ingress a moment later.
func takenHost(name, fragment, host string) row {
	const outside = ": an Ingress or a route outside the project has it"
	return row{
		class: services, name: name, roles: []role{l1, editor, serviceAccount, engineer, namespaceAdmin}, rbac: []role{l2, viewer, outsider},
		want: host + outside, control: create("Ingress", ""),
		attack: do("create an Ingress with "+fragment, func(a *attacker) (*unstructured.Unstructured, error) {
			if _, err := a.as(neighbor).fixture("Ingress", neighborsHosts); err != nil {
				return nil, err
			}
			ingress, err := a.ordinary("Ingress", a.intruder(), fragment)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errFixture, err)
			}
			var refusal error
			a.eventually(func() error {
				if refusal = a.create(ingress.DeepCopy()); refusal == nil {
					return errors.New("accepted")
				}
				return nil
			})
			return ingress, refusal
		}),
	}
}
