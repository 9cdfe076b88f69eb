// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/status"
)

// Resources of the API server.
const (
	resourcePods     = "pods"
	resourceGPUNodes = "gpunodes"
	resourceEvents   = "events"
)

// fieldName selects an object by its name.
const fieldName = "metadata.name"

// kubeClient reads and writes the objects that the agent of one node needs. The clients of
// controller-runtime and client-go register the types of all of Kubernetes, which would take half of
// the agent's memory.
type kubeClient struct {
	node                 string
	core, sluice, events rest.Interface
	// authentication and authorization review the clients of the metrics.
	authentication, authorization rest.Interface
}

var _ status.Client = (*kubeClient)(nil)

// newKubeClient returns a client. It sends no request.
func newKubeClient(cfg *rest.Config, node string) (*kubeClient, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, eventsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	connection, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	c := &kubeClient{node: node}
	for _, each := range []struct {
		group       schema.GroupVersion
		path        string
		contentType string
		into        *rest.Interface
	}{
		{corev1.SchemeGroupVersion, "/api", runtime.ContentTypeProtobuf, &c.core},
		{eventsv1.SchemeGroupVersion, "/apis", runtime.ContentTypeProtobuf, &c.events},
		{authenticationv1.SchemeGroupVersion, "/apis", runtime.ContentTypeJSON, &c.authentication},
		{authorizationv1.SchemeGroupVersion, "/apis", runtime.ContentTypeJSON, &c.authorization},
		{v1alpha1.GroupVersion, "/apis", runtime.ContentTypeJSON, &c.sluice},
	} {
		if *each.into, err = newRESTClient(cfg, connection, each.group, each.path, each.contentType); err != nil {
			return nil, fmt.Errorf("create client of %s: %w", each.group, err)
		}
	}
	return c, nil
}

func newRESTClient(cfg *rest.Config, connection *http.Client, group schema.GroupVersion, path, contentType string) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath, cfg.ContentType = &group, path, contentType
	return rest.RESTClientForConfigAndClient(cfg, connection)
}

// GetGPUNode implements status.Client.
func (c *kubeClient) GetGPUNode(ctx context.Context) (*v1alpha1.GPUNode, error) {
	var node v1alpha1.GPUNode
	err := c.sluice.Get().Resource(resourceGPUNodes).Name(c.node).Do(ctx).Into(&node)
	return &node, err
}

// PatchGPUNodeStatus implements status.Client.
func (c *kubeClient) PatchGPUNodeStatus(ctx context.Context, patch []byte) error {
	return c.sluice.Patch(types.MergePatchType).Resource(resourceGPUNodes).Name(c.node).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: v1alpha1.FieldManagerGPUAgent}, metav1.ParameterCodec).
		Body(patch).Do(ctx).Error()
}

// listPods returns a function that lists the pods that have the node in a field.
func (c *kubeClient) listPods(field string) func(context.Context) ([]corev1.Pod, error) {
	options := &metav1.ListOptions{FieldSelector: c.selectNode(field)}
	return func(ctx context.Context) ([]corev1.Pod, error) {
		var list corev1.PodList
		err := c.core.Get().Resource(resourcePods).VersionedParams(options, metav1.ParameterCodec).Do(ctx).Into(&list)
		return list.Items, err
	}
}

func (c *kubeClient) selectNode(field string) string {
	return fields.OneTermEqualSelector(field, c.node).String()
}

// createEvent creates an event.
func (c *kubeClient) createEvent(ctx context.Context, event *eventsv1.Event) error {
	return c.events.Post().Namespace(event.Namespace).Resource(resourceEvents).Body(event).Do(ctx).Error()
}

// patchEvent sends a merge patch of an event.
func (c *kubeClient) patchEvent(ctx context.Context, namespace, name string, patch []byte) error {
	return c.events.Patch(types.MergePatchType).Namespace(namespace).Resource(resourceEvents).Name(name).Body(patch).Do(ctx).Error()
}

// listWatch returns the objects that have the node in a field, for a cache.
func (c *kubeClient) listWatch(client rest.Interface, resource, field string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll,
		func(options *metav1.ListOptions) { options.FieldSelector = c.selectNode(field) })
}
