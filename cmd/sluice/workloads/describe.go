// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
)

// Templates returns the pod templates of a workload that can be decoded.
func (w *Workload) Templates() []corev1.PodTemplateSpec {
	var templates []corev1.PodTemplateSpec
	for _, found := range workloadkind.Templates(w.Object.GroupVersionKind().GroupKind(), w.Object.Object) {
		var template corev1.PodTemplateSpec
		if runtime.DefaultUnstructuredConverter.FromUnstructured(found.Body, &template) == nil {
			templates = append(templates, template)
		}
	}
	return templates
}

// templatesOrPods returns the templates, or what the pods have if the kind has none.
func (w *Workload) templatesOrPods() []corev1.PodTemplateSpec {
	templates := w.Templates()
	if len(templates) == 0 {
		for _, pod := range w.Pods {
			templates = append(templates, corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
		}
	}
	return templates
}

// Images returns the images of the first container of each template, sorted.
func (w *Workload) Images() []string {
	images := map[string]bool{}
	for _, template := range w.templatesOrPods() {
		if len(template.Spec.Containers) > 0 {
			images[template.Spec.Containers[0].Image] = true
		}
	}
	return slices.Sorted(maps.Keys(images))
}

// Nodes returns the nodes of the pods that have not ended and are not terminating, sorted.
func (w *Workload) Nodes() []string {
	nodes := map[string]bool{}
	for _, pod := range w.Pods {
		if pod.Spec.NodeName != "" && !workload.IsPodTerminal(pod) && pod.DeletionTimestamp == nil {
			nodes[pod.Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// Type returns the type of workload: that of its pods, of its clock or of its template.
func (w *Workload) Type() v1alpha1.WorkloadType {
	for _, pod := range w.Pods {
		if found := pod.Labels[v1alpha1.LabelWorkloadType]; found != "" {
			return v1alpha1.WorkloadType(found)
		}
	}
	if w.Clock != nil && w.Clock.Status.WorkloadType != "" {
		return w.Clock.Status.WorkloadType
	}
	for _, template := range w.Templates() {
		if found := template.Labels[v1alpha1.LabelWorkloadType]; found != "" {
			return v1alpha1.WorkloadType(found)
		}
	}
	return v1alpha1.WorkloadType(w.Object.GetLabels()[v1alpha1.LabelWorkloadType])
}

// Project returns the project that admission wrote on the pods; empty without pods.
func (w *Workload) Project() string {
	for _, pod := range w.Pods {
		if project := pod.Labels[v1alpha1.LabelProject]; project != "" {
			return project
		}
	}
	return ""
}

// User returns the name of the user who created the workload.
func (w *Workload) User() string {
	if user := w.Object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]; user != "" {
		return user
	}
	if w.Clock != nil {
		return w.Clock.Status.CreatedBy
	}
	return ""
}

// GPUs returns what the workload requests, such as 2, 0.5, 2x3g.40gb or 8192Mi: of all its pods that are
// not terminating, and without pods of one pod of each template.
func (w *Workload) GPUs() string {
	totals := map[string]int64{}
	var sum workload.Milli
	count := func(request workload.Request, err error) {
		switch {
		case err != nil || !request.RequestsGPU():
		case request.Form == workload.FormWhole || request.Form == workload.FormShare:
			sum += request.GPUs
		case request.Form == workload.FormMIG:
			totals[string(request.MIGProfile)] += request.Devices
		case request.Form == workload.FormMemory:
			totals[strconv.FormatInt(request.MemoryMiB, 10)+"Mi"] += request.Devices
		default:
			totals["replica"] += request.Devices
		}
	}
	counted := false
	for _, pod := range w.Pods {
		if !workload.IsPodTerminal(pod) && pod.DeletionTimestamp == nil {
			counted = true
			request, err := workload.ParsePod(pod)
			count(request, err)
			if err == nil && !request.RequestsGPU() {
				sum += charge(pod) // of a resource that only the NodePool knows as a GPU
			}
		}
	}
	if !counted {
		for _, template := range w.Templates() {
			count(workload.Parse(&template))
		}
	}
	text := ""
	if sum > 0 {
		text = sum.String()
	}
	for _, device := range slices.Sorted(maps.Keys(totals)) {
		if text != "" {
			text += ","
		}
		if totals[device] > 1 {
			text += strconv.FormatInt(totals[device], 10) + "x"
		}
		text += device
	}
	return text
}

// charge returns the GPU quota that the pod uses; admission writes it on one container.
func charge(pod *corev1.Pod) (sum workload.Milli) {
	for i := range pod.Spec.Containers {
		for name, quantity := range pod.Spec.Containers[i].Resources.Requests {
			if v1alpha1.IsGPUMilli(name) {
				sum += workload.Milli(quantity.Value())
			}
		}
	}
	return sum
}

// Addresses returns the addresses of the Ingresses and Services of a workload: the ones that a browser outside
// of the cluster reaches first.
func (w *Workload) Addresses() []string {
	var outside, inside []string
	for _, ingress := range w.Ingresses {
		outside = append(outside, ingressAddresses(ingress)...)
	}
	for _, service := range w.Services {
		for _, port := range service.Spec.Ports {
			number := strconv.Itoa(int(port.Port))
			switch {
			case len(service.Status.LoadBalancer.Ingress) > 0:
				for _, balancer := range service.Status.LoadBalancer.Ingress {
					outside = append(outside, cmp.Or(balancer.Hostname, balancer.IP)+":"+number)
				}
			case port.NodePort != 0:
				outside = append(outside, cmp.Or(w.nodeAddress(), "NODE")+":"+strconv.Itoa(int(port.NodePort)))
			default:
				inside = append(inside, service.Name+"."+service.Namespace+":"+number)
			}
		}
	}
	return append(outside, inside...)
}

// nodeAddress returns the address of the node of a pod. Users may not read nodes; their pods have it.
func (w *Workload) nodeAddress() string {
	for _, pod := range w.Pods {
		if pod.Status.HostIP != "" {
			return pod.Status.HostIP
		}
	}
	return ""
}

func ingressAddresses(ingress *networkingv1.Ingress) []string {
	secure := map[string]bool{}
	for _, tls := range ingress.Spec.TLS {
		for _, host := range tls.Hosts {
			secure[host] = true
		}
	}
	balancer := ""
	for _, entry := range ingress.Status.LoadBalancer.Ingress {
		balancer = cmp.Or(balancer, entry.Hostname, entry.IP)
	}
	var addresses []string
	for _, rule := range ingress.Spec.Rules {
		host := cmp.Or(rule.Host, balancer)
		if rule.HTTP == nil || host == "" {
			continue
		}
		scheme := "http"
		if secure[rule.Host] || rule.Host == "" && len(ingress.Spec.TLS) > 0 {
			scheme = "https"
		}
		for _, path := range rule.HTTP.Paths {
			addresses = append(addresses, fmt.Sprintf("%s://%s%s", scheme, host, path.Path))
		}
	}
	return addresses
}

// backendsOf returns the names of the Services of an Ingress.
func backendsOf(ingress *networkingv1.Ingress) []string {
	var names []string
	add := func(backend *networkingv1.IngressBackend) {
		if backend != nil && backend.Service != nil {
			names = append(names, backend.Service.Name)
		}
	}
	add(ingress.Spec.DefaultBackend)
	for _, rule := range ingress.Spec.Rules {
		if rule.HTTP != nil {
			for i := range rule.HTTP.Paths {
				add(&rule.HTTP.Paths[i].Backend)
			}
		}
	}
	return names
}
