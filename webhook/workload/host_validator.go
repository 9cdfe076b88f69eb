// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// HostValidator refuses an Ingress or a route of a project with a host that an Ingress or a route of another namespace
// has: it would get a part of that host's requests, with their cookies. What an object had before may stay. Objects without
// a host are the choice of the department.
type HostValidator struct {
	// Cache has the objects with hosts, and the namespaces.
	Cache client.Reader
	// Mapper maps the kinds of routes, which may be missing in the cluster.
	Mapper meta.RESTMapper
}

var _ admission.Handler = (*HostValidator)(nil)

const gatewayGroup = "gateway.networking.k8s.io"

// hostKinds are the kinds with hosts.
var hostKinds = []schema.GroupKind{
	{Group: networkingv1.GroupName, Kind: "Ingress"},
	{Group: gatewayGroup, Kind: "HTTPRoute"},
	{Group: gatewayGroup, Kind: "GRPCRoute"},
	{Group: gatewayGroup, Kind: "TLSRoute"},
}

// Handle implements admission.Handler.
func (v *HostValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	before, err := evaluation.DecodeObject(req.OldObject.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	after, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	kept := hostsOf(before)
	added := slices.DeleteFunc(hostsOf(after), func(host string) bool { return slices.Contains(kept, host) })
	if len(added) == 0 {
		return admission.Allowed("")
	}
	for _, kind := range hostKinds {
		host, err := v.findConflict(ctx, kind, req.Namespace, added)
		switch {
		case err != nil:
			return evaluation.ErrorResponse(err)
		case host != "": // whose it is does not concern the user
			return admission.Denied(fmt.Sprintf("host %s: an Ingress or a route outside the project has it; choose another host that "+
				"the department allows", host))
		}
	}
	return admission.Allowed("")
}

// findConflict returns one of the hosts that an object of the kind has in another namespace; "" for none.
func (v *HostValidator) findConflict(ctx context.Context, kind schema.GroupKind, namespace string, hosts []string) (string, error) {
	mapping, err := v.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find kind %s: %w", kind, err)
	}
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := v.Cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list objects of kind %s: %w", kind, err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.GetNamespace() == namespace {
			continue
		}
		for _, theirs := range hostsOf(other.Object) {
			for _, host := range hosts {
				if host == theirs {
					return host, nil
				}
				// A wildcard outside projects is the cluster's, such as that of a page for unknown hosts.
				if suffix, wildcard := strings.CutPrefix(theirs, "*"); wildcard && strings.HasSuffix(host, suffix) {
					if owned, err := v.isProject(ctx, other.GetNamespace()); owned || err != nil {
						return host, err
					}
				}
			}
		}
	}
	return "", nil
}

func (v *HostValidator) isProject(ctx context.Context, namespace string) (bool, error) {
	var object corev1.Namespace
	if err := v.Cache.Get(ctx, types.NamespacedName{Name: namespace}, &object); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return object.Labels[v1alpha1.LabelProject] != "", nil
}

// hostsOf returns the hosts of an Ingress or a route in lower case.
func hostsOf(object map[string]any) (hosts []string) {
	spec := mergeschema.AsMap(object["spec"])
	var values []any
	for _, rule := range mergeschema.AsList(spec["rules"]) {
		values = append(values, mergeschema.AsMap(rule)["host"])
	}
	for _, entry := range mergeschema.AsList(spec["tls"]) {
		values = append(values, mergeschema.AsList(mergeschema.AsMap(entry)["hosts"])...)
	}
	for _, value := range append(values, mergeschema.AsList(spec["hostnames"])...) {
		if host := mergeschema.AsString(value); host != "" {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	return hosts
}
