// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/webhook/workload"
)

const (
	ingressVersion = "{apiVersion: networking.k8s.io/v1, kind: Ingress, "
	routeVersion   = "{apiVersion: gateway.networking.k8s.io/v1beta1, kind: HTTPRoute, "
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// A project gets no requests for a host of another namespace. Guards invariant 10 of the design.
func TestHosts(t *testing.T) {
	existing := []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: work, labels: {sluice.dev/project: work}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: neighbor, labels: {sluice.dev/project: neighbor}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: portal}}",
		ingressVersion + "metadata: {namespace: work, name: own}, spec: {rules: [{host: own.example.org}]}}",
		ingressVersion + "metadata: {namespace: neighbor, name: a}, spec: {rules: [{host: a.example.org}, {host: '*.lab.example.org'}], tls: [{hosts: [secure.example.org]}]}}",
		ingressVersion + "metadata: {namespace: neighbor, name: all}, spec: {defaultBackend: {service: {name: a}}}}",
		ingressVersion + "metadata: {namespace: portal, name: pages}, spec: {rules: [{host: '*.example.org'}, {host: portal.example.org}]}}",
		routeVersion + "metadata: {namespace: neighbor, name: r}, spec: {hostnames: [route.example.org]}}",
		routeVersion + "metadata: {namespace: neighbor, name: mesh}, spec: {}}",
	}
	ingress := func(hosts string) string {
		return ingressVersion + "metadata: {name: x}, spec: {rules: [" + hosts + "]}}"
	}
	taken := func(host string) string {
		return "host " + host + ": an Ingress or a route outside the project has it"
	}
	tests := map[string]struct {
		before, after string
		noRoutes      bool // HTTPRoute is not installed
		failing       bool
		code          int32
		want          string
	}{
		"a free host":                         {after: ingress("{host: b.example.org}")},
		"a host of the project":               {after: ingress("{host: own.example.org}")},
		"no host":                             {after: ingress("{}")},
		"another project's host":              {after: ingress("{host: b.example.org}, {host: a.example.org}"), want: taken("a.example.org")},
		"another project's host, upper case":  {after: routeVersion + "metadata: {name: x}, spec: {hostnames: [A.example.org]}}", want: taken("a.example.org")},
		"another project's host of TLS":       {after: ingress("{host: secure.example.org}"), want: taken("secure.example.org")},
		"TLS of another project's host":       {after: ingressVersion + "metadata: {name: x}, spec: {tls: [{hosts: [a.example.org]}]}}", want: taken("a.example.org")},
		"the cluster's host":                  {after: ingress("{host: portal.example.org}"), want: taken("portal.example.org")},
		"below another project's wildcard":    {after: ingress("{host: login.lab.example.org}"), want: taken("login.lab.example.org")},
		"another project's wildcard":          {after: ingress("{host: '*.lab.example.org'}"), want: taken("*.lab.example.org")},
		"above another project's wildcard":    {after: ingress("{host: lab.example.org}")},
		"a route's host":                      {after: ingress("{host: route.example.org}"), want: taken("route.example.org")},
		"a route with an Ingress's host":      {after: routeVersion + "metadata: {name: x}, spec: {hostnames: [a.example.org]}}", want: taken("a.example.org")},
		"a route's host, without the kind":    {after: ingress("{host: route.example.org}"), noRoutes: true},
		"an Ingress's host, without the kind": {after: ingress("{host: a.example.org}"), noRoutes: true, want: taken("a.example.org")},
		"a host that it had":                  {before: ingress("{host: a.example.org}"), after: ingress("{host: a.example.org}, {host: b.example.org}")},
		"a host that is added":                {before: ingress("{host: b.example.org}"), after: ingress("{host: a.example.org}, {host: b.example.org}"), want: taken("a.example.org")},
		"not a list":                          {after: ingressVersion + "metadata: {name: x}, spec: {rules: all, tls: [1], hostnames: {}}}"},
		"the API server is away":              {after: ingress("{host: b.example.org}"), failing: true, code: http.StatusInternalServerError, want: "list objects of kind Ingress.networking.k8s.io"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			scheme, err := api.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			ingresses := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}
			route := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "HTTPRoute"}
			scheme.AddKnownTypeWithName(route, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(route.GroupVersion().WithKind("HTTPRouteList"), &unstructured.UnstructuredList{})
			mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{ingresses.GroupVersion(), route.GroupVersion()})
			mapper.Add(ingresses, apimeta.RESTScopeNamespace)
			if !tc.noRoutes {
				mapper.Add(route, apimeta.RESTScopeNamespace)
			}
			var objects []client.Object
			for _, text := range existing {
				objects = append(objects, object(t, text))
			}
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.failing {
						return errors.New("away")
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "work", Name: "x"}}
			for text, raw := range map[string]*runtime.RawExtension{tc.before: &request.OldObject, tc.after: &request.Object} {
				if text != "" {
					if raw.Raw, err = object(t, text).MarshalJSON(); err != nil {
						t.Fatal(err)
					}
				}
			}
			response := (&workload.HostValidator{Cache: cached, Mapper: mapper}).Handle(t.Context(), request)
			if response.Allowed != (tc.want == "") {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if tc.want == "" {
				return
			}
			if code := max(tc.code, http.StatusForbidden); response.Result.Code != code || !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("%d %q, want %q", response.Result.Code, response.Result.Message, tc.want)
			}
			if strings.Contains(response.Result.Message, "neighbor") {
				t.Errorf("%q names whose host it is", response.Result.Message)
			}
		})
	}
}
