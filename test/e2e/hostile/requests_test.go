// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// create creates the ordinary object of a kind, changed by a YAML fragment. The control is the
// ordinary object.
func create(kind, fragment string) attempt { return createWith(kind, "", fragment) }

// createPods is create with a fragment of the pod, which for other kinds changes the template.
func createPods(kind, fragment string) attempt { return create(kind, inTemplate(kind, fragment)) }

// createWith is create with a fragment that the control has, too.
func createWith(kind, both, fragment string) attempt {
	send := func(fragments ...string) func(a *attacker) (*unstructured.Unstructured, error) {
		return func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := a.ordinary(kind, a.intruder(), fragments...)
			if err != nil {
				return nil, err
			}
			return object, a.create(object)
		}
	}
	return attempt{
		text: fmt.Sprintf("create %s with %s", kind, shorten(both+fragment)), run: send(both, fragment),
		control: &attempt{text: fmt.Sprintf("create %s with %s", kind, both), run: send(both)},
	}
}

// apply creates an object of which the YAML says all. There is no control.
func apply(text string) attempt {
	return attempt{text: "create " + shorten(text), run: func(a *attacker) (*unstructured.Unstructured, error) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(a.expand(text)), &object.Object); err != nil {
			return nil, err
		}
		return object, a.create(object)
	}}
}

// target is an object that a request concerns.
type target struct {
	text string
	find func(a *attacker) (*unstructured.Unstructured, error)
	// foreign is empty for the attacker's own objects.
	foreign string
}

// own is an object that the attacker created before: the ordinary one with the fragment. Pods do
// not start.
func own(kind string, fragments ...string) target {
	return target{text: fmt.Sprintf("the attacker's %s %s", kind, shorten(strings.Join(fragments, ""))), find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(a.role).fixture(kind, fragments...)
	}}
}

// colleagues is such an object of another member of the project, an L1 researcher.
func colleagues(kind string, fragments ...string) target {
	return target{text: "a colleague's " + kind, foreign: "it is a colleague's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(colleague).fixture(kind, fragments...)
	}}
}

// neighbors is such an object in another project.
func neighbors(kind string, fragments ...string) target {
	return target{text: "a neighbor's " + kind, foreign: "it is another project's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(neighbor).fixture(kind, fragments...)
	}}
}

// named is an object of Sluice, of the scheduler or of the cluster.
func named(kind, name string) target {
	return target{text: kind + " " + name, foreign: "it is not the attacker's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		object := newObject(kind)
		object.SetName(a.expand(name))
		object.SetNamespace(a.namespace)
		return object, nil
	}}
}

// patch changes an object: by a JSON patch if the body is a list, else as kubectl would. The
// control is an annotation.
func patch(of target, body string) attempt { return patchSubresource(of, "", body, noteBody) }

const noteBody = `{"metadata":{"annotations":{"example.org/note":"mine"}}}`

// patchStatus is patch through the subresource status.
func patchStatus(of target, body string) attempt {
	return patchSubresource(of, "status", body, noteBody)
}

// patchSubresource is patch through a subresource. The control sends the body control; none if it
// is empty.
func patchSubresource(of target, subresource, body, control string) attempt {
	send := func(body string) func(a *attacker) (*unstructured.Unstructured, error) {
		return func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			return object, a.patch(object, subresource, body)
		}
	}
	result := attempt{text: fmt.Sprintf("patch %s %s with %s", of.text, subresource, shorten(body)), run: send(body), foreign: of.foreign}
	if of.foreign == "" && control != "" {
		result.control = &attempt{text: fmt.Sprintf("patch %s %s with %s", of.text, subresource, control), run: send(control)}
	}
	return result
}

// remove deletes an object.
func remove(of target, options ...client.DeleteOption) attempt {
	return attempt{
		text: fmt.Sprintf("delete %s %v", of.text, options), foreign: of.foreign,
		run: func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			if a.dry {
				options = append(options[:len(options):len(options)], client.DryRunAll)
			}
			return object, a.client.Delete(a.t.Context(), object.DeepCopy(), options...)
		},
	}
}

// removeAll deletes all objects of the kind in the attacker's namespace. It is always a dry run.
func removeAll(kind string) attempt {
	return attempt{text: "delete all of kind " + kind, foreign: "they are not all the attacker's", run: func(a *attacker) (*unstructured.Unstructured, error) {
		object := newObject(kind)
		return object, a.client.DeleteAllOf(a.t.Context(), object, client.InNamespace(a.namespace), client.DryRunAll)
	}}
}

// post creates a subresource of an object, such as a Binding, an Eviction or a Scale.
func post(of target, subresource, body string) attempt {
	return attempt{
		text: fmt.Sprintf("create %s of %s: %s", subresource, of.text, shorten(body)), foreign: of.foreign,
		run: func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			sub := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(a.expand(body)), &sub.Object); err != nil {
				return nil, err
			}
			sub.SetName(object.GetName())
			sub.SetNamespace(object.GetNamespace())
			var options []client.SubResourceCreateOption
			if a.dry {
				options = append(options, client.DryRunAll)
			}
			return object, a.client.SubResource(subresource).Create(a.t.Context(), object.DeepCopy(), sub, options...)
		},
	}
}

// do is any other request. It has to observe a.dry.
func do(text string, run func(a *attacker) (*unstructured.Unstructured, error)) attempt {
	return attempt{text: text, run: run}
}

// really sends the request for real, and not as a dry run. What it creates is deleted afterwards.
func really(of attempt) attempt {
	run := of.run // for the control a dry run suffices
	of.run = func(a *attacker) (*unstructured.Unstructured, error) {
		sender := *a
		sender.dry = false
		return run(&sender)
	}
	return of
}

// inNamespace sends the request in another namespace.
func inNamespace(namespace string, of attempt) attempt {
	if of.control != nil {
		control := inNamespace(namespace, *of.control)
		of.control = &control
	}
	run := of.run
	of.run = func(a *attacker) (*unstructured.Unstructured, error) {
		there := *a
		there.namespace = a.expand(namespace)
		return run(&there)
	}
	of.text += " in " + namespace
	return of
}
