// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation installs the shipped manifests in a cluster, and finds the version that a cluster has.
package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// The names of the components' objects, which are also those of their programs and images.
const (
	lifecycleName = "lifecycle"
	webhookName   = "webhook"
	agentName     = "gpuagent"
)

// Overlays are the installations that [Install] can make, the default first.
var Overlays = []string{"production", "minimal", "rke2", "without-operator"}

// Installation is an installation of the shipped manifests.
type Installation struct {
	// Overlay is one of [Overlays].
	Overlay string
	// Registry is the registry and the folder of the images, such as registry.example.org/sluice.
	Registry string
	// Tag is the tag of the images.
	Tag string
	// Version is that of the manifests, which is the version of this program.
	Version string
	// Replicas are the numbers of pods, 0 for those of the overlay.
	Replicas Replicas
	// KeepCRDs applies no CustomResourceDefinitions: older ones would drop fields of objects.
	KeepCRDs bool
}

// Replicas are the numbers of pods of the components. 0 means those of the overlay.
type Replicas struct{ Webhook, Lifecycle int }

// maxReplicas is more than a component can use, and keeps a mistake small.
const maxReplicas = 10

// Validate returns an error for a number of pods that no component can have.
func (r Replicas) Validate() error {
	for _, flag := range []struct {
		name  string
		value int
	}{{"--webhook-replicas", r.Webhook}, {"--lifecycle-replicas", r.Lifecycle}} {
		if flag.value < 0 || flag.value > maxReplicas {
			return fmt.Errorf("%s %d: want a number from 1 to %d", flag.name, flag.value, maxReplicas)
		}
	}
	return nil
}

// Images returns the images of the installation.
func (i Installation) Images() []string {
	var images []string
	for _, program := range []string{lifecycleName, webhookName, agentName} {
		images = append(images, fmt.Sprintf("%s/sluice-%s:%s", strings.TrimSuffix(i.Registry, "/"), program, i.Tag))
	}
	return images
}

func (i Installation) objects() ([]*unstructured.Unstructured, error) {
	if !slices.Contains(Overlays, i.Overlay) {
		return nil, fmt.Errorf("overlay %q is none of %s", i.Overlay, strings.Join(Overlays, ", "))
	}
	if err := i.Replicas.Validate(); err != nil {
		return nil, err
	}
	var kustomization bytes.Buffer
	fmt.Fprintf(&kustomization, "resources: [../overlays/%s]\nimages:\n", i.Overlay)
	for _, image := range i.Images() {
		name, tag := image[:strings.LastIndexByte(image, ':')], i.Tag
		fmt.Fprintf(&kustomization, "- {name: %q, newName: %q, newTag: %q}\n", name[strings.LastIndexByte(name, '/')+1:], name, tag)
	}
	if i.Version != "" && len(validation.IsValidLabelValue(i.Version)) == 0 {
		fmt.Fprintf(&kustomization, "labels:\n- {pairs: {%s: %q}}\n", v1alpha1.LabelVersion, i.Version)
	}
	objects, err := manifests.BuildOverlay(kustomization.Bytes())
	if err != nil {
		return nil, err
	}
	if i.KeepCRDs {
		objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
	}
	return objects, i.Replicas.Set(objects)
}

// Set sets the numbers of pods of the Deployments.
func (r Replicas) Set(objects []*unstructured.Unstructured) error {
	replicas := map[string]int{webhookName: r.Webhook, lifecycleName: r.Lifecycle}
	for _, object := range objects {
		if n := replicas[object.GetName()]; n > 0 && object.GetKind() == "Deployment" {
			if err := unstructured.SetNestedField(object.Object, int64(n), "spec", "replicas"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Install applies the shipped manifests in a cluster, as `kubectl apply --server-side -k` does. At a field that another program has
// set it fails, and changes nothing. It can be repeated.
func Install(ctx context.Context, config *rest.Config, i Installation, output io.Writer) error {
	objects, err := i.objects()
	if err != nil {
		return err
	}
	admin, err := NewAdminClient(config)
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "Checking %d objects, without effect\n", len(objects))
	if err := checkApply(ctx, admin, objects); err != nil {
		return fmt.Errorf("%w\nnothing was changed", err)
	}
	fmt.Fprintf(output, "Applying %d objects\n", len(objects))
	if err := Apply(ctx, admin, objects); err != nil {
		return explainConflict(err)
	}
	return WaitForGroup(ctx, admin, v1alpha1.Group)
}

func explainConflict(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w; another program has installed Sluice in this cluster or set these fields: "+
			"upgrade it with that program, or remove these fields from it", err)
	}
	return err
}

// maxRefusals limits the number of refused objects in an error.
const maxRefusals = 10

// checkApply applies all objects without effect, and returns all refusals. What depends on an object that does not exist yet is
// no refusal.
func checkApply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var refused []error
	more := 0
	for _, object := range objects {
		err := Apply(ctx, c, []*unstructured.Unstructured{object.DeepCopy()}, client.DryRunAll)
		switch {
		case err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err): // its namespace, or its kind
		case apierrors.IsInvalid(err) && object.GetKind() == "Job": // it is replaced
		case apierrors.IsForbidden(err) && strings.HasSuffix(object.GetKind(), "Binding"): // the rights of its role
		case ctx.Err() != nil:
			return ctx.Err()
		case len(refused) < maxRefusals:
			refused = append(refused, explainConflict(err))
		default:
			more++
		}
	}
	if more > 0 {
		refused = append(refused, fmt.Errorf("and %d more objects", more))
	}
	return errors.Join(refused...)
}
