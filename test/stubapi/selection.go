// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is what of a kind a request wants.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// selected reads the selection of a request.
func selected(namespace string, query url.Values) (*selection, error) {
	s := &selection{namespace: namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	return s, nil
}

func (s *selection) has(o *object) bool {
	return (s.namespace == "" || o.namespace == s.namespace) && s.labels.Matches(o.labels) && s.fields.Matches(o.fields)
}
