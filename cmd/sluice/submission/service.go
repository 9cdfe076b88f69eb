// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// service returns the Service of the workload's ports.
func (r *Request) service() *corev1.Service {
	service := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: r.meta(),
		Spec: corev1.ServiceSpec{Selector: map[string]string{LabelInstance: r.Name}},
	}
	switch r.ServiceType {
	case NodePort:
		service.Spec.Type = corev1.ServiceTypeNodePort
	case LoadBalancer:
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	for _, port := range r.Ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: "port-" + strconv.Itoa(int(port.Service)), Port: port.Service, TargetPort: intstr.FromInt32(port.Container),
		})
	}
	return service
}

// ingress returns an Ingress of the cluster's default class, which serves the first port below the path /NAME of its host.
func (r *Request) ingress() *networkingv1.Ingress {
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: r.Name, Port: networkingv1.ServiceBackendPort{Number: r.Ports[0].Service},
	}}
	return &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, ObjectMeta: r.meta(),
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: r.Host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/" + r.Name, PathType: ptr.To(networkingv1.PathTypePrefix), Backend: backend,
			}}}},
		}}},
	}
}
