// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"strings"
	"testing"

	apiconstraints "github.com/open-policy-agent/frameworks/constraint/pkg/apis/constraints"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"github.com/open-policy-agent/frameworks/constraint/pkg/handler"
	"github.com/open-policy-agent/frameworks/constraint/pkg/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// gatekeeper is Gatekeeper's client with its Rego driver and its own target, as
// Gatekeeper configures them, with these policies.
func gatekeeper(tb testing.TB, policies []policy) *client.Client {
	tb.Helper()
	return clientFor(tb, &target.K8sValidationTarget{}, policies)
}

// driver is the same with a target that costs almost nothing. It measures the client and
// the driver.
func driver(tb testing.TB, policies []policy) *client.Client {
	tb.Helper()
	return clientFor(tb, plainTarget{}, policies)
}

func clientFor(tb testing.TB, matching handler.TargetHandler, policies []policy) *client.Client {
	tb.Helper()
	evaluator, err := rego.New(rego.DisableBuiltins("http.send"))
	if err != nil {
		tb.Fatal(err)
	}
	c, err := client.NewClient(
		client.Driver(evaluator), client.Targets(matching), client.EnforcementPoints(apiconstraints.WebhookEnforcementPoint),
	)
	if err != nil {
		tb.Fatal(err)
	}
	added := make(map[string]bool)
	for _, p := range policies {
		if !added[p.template] {
			added[p.template] = true
			if _, err := c.AddTemplate(tb.Context(), templateOf(p)); err != nil {
				tb.Fatal(err)
			}
		}
		if _, err := c.AddConstraint(tb.Context(), constraintOf(p)); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

func templateOf(p policy) *templates.ConstraintTemplate {
	anything := apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	source := schema.Source{Rego: p.rego, Version: "v0"}
	template := &templates.ConstraintTemplate{}
	template.Name = strings.ToLower(p.template)
	template.Spec.CRD.Spec.Names.Kind = p.template
	template.Spec.CRD.Spec.Validation = &templates.Validation{OpenAPIV3Schema: &anything}
	template.Spec.Targets = []templates.Target{{
		Target: target.Name,
		Code:   []templates.Code{{Engine: schema.Name, Source: &templates.Anything{Value: source.ToUnstructured()}}},
	}}
	return template
}

func constraintOf(p policy) *unstructured.Unstructured {
	constraint := &unstructured.Unstructured{Object: object{
		"apiVersion": apiconstraints.Group + "/v1beta1", "kind": p.template,
		"spec": object{"match": object{"kinds": []any{object{"apiGroups": []any{""}, "kinds": []any{"Pod"}}}}, "parameters": normal(p.parameters)},
	}}
	constraint.SetName(p.name)
	return constraint
}

// normal converts numbers to a type that unstructured objects accept.
func normal(parameters object) object {
	for key, value := range parameters {
		if number, ok := value.(int); ok {
			parameters[key] = int64(number)
		}
	}
	return parameters
}

// reviewWith does what Gatekeeper's webhook does with a body: decode and review.
func reviewWith(tb testing.TB, c *client.Client, body []byte) []*types.Result {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		tb.Fatal(err)
	}
	responses, err := c.Review(tb.Context(), review.Request, reviews.EnforcementPoint(apiconstraints.WebhookEnforcementPoint))
	if err != nil {
		tb.Fatal(err)
	}
	return responses.Results()
}
