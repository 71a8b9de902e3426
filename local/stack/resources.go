package stack

import "errors"

func (t *Template) addAPI(r resource) error {
	var p struct {
		Auth              map[string]any `yaml:"Auth"`
		AccessLogSettings struct {
			DestinationArn any `yaml:"DestinationArn"`
		} `yaml:"AccessLogSettings"`
	}
	if err := r.Properties.Decode(&p); err != nil {
		return err
	}
	t.API.Auth, t.API.AccessLog = p.Auth, p.AccessLogSettings.DestinationArn
	return nil
}

type keySchema []struct {
	AttributeName string `yaml:"AttributeName"`
	KeyType       string `yaml:"KeyType"`
}

func (s keySchema) key() Key {
	var k Key
	for _, e := range s {
		switch e.KeyType {
		case "HASH":
			k.Hash = e.AttributeName
		case "RANGE":
			k.Range = e.AttributeName
		}
	}
	return k
}

type table struct {
	TableName            any    `yaml:"TableName"`
	BillingMode          string `yaml:"BillingMode"`
	AttributeDefinitions []struct {
		AttributeName string `yaml:"AttributeName"`
		AttributeType string `yaml:"AttributeType"`
	} `yaml:"AttributeDefinitions"`
	KeySchema              keySchema `yaml:"KeySchema"`
	GlobalSecondaryIndexes []struct {
		IndexName  string    `yaml:"IndexName"`
		KeySchema  keySchema `yaml:"KeySchema"`
		Projection struct {
			ProjectionType string `yaml:"ProjectionType"`
		} `yaml:"Projection"`
	} `yaml:"GlobalSecondaryIndexes"`
	LocalSecondaryIndexes any `yaml:"LocalSecondaryIndexes"`
	StreamSpecification   struct {
		StreamViewType string `yaml:"StreamViewType"`
	} `yaml:"StreamSpecification"`
	TimeToLiveSpecification struct {
		AttributeName string `yaml:"AttributeName"`
		Enabled       bool   `yaml:"Enabled"`
	} `yaml:"TimeToLiveSpecification"`
	PointInTimeRecoverySpecification struct {
		PointInTimeRecoveryEnabled bool `yaml:"PointInTimeRecoveryEnabled"`
	} `yaml:"PointInTimeRecoverySpecification"`
	DeletionProtectionEnabled bool `yaml:"DeletionProtectionEnabled"`
	SSESpecification          struct {
		SSEEnabled bool `yaml:"SSEEnabled"`
	} `yaml:"SSESpecification"`
}

func (t *Template) addTable(r resource) error {
	var p table
	if err := r.Properties.Decode(&p); err != nil {
		return err
	}
	if t.Table.Key.Hash != "" {
		return errors.New("a second table")
	}
	t.Table = Table{
		BillingMode: p.BillingMode, AttributeTypes: map[string]string{}, Key: p.KeySchema.key(),
		StreamViewType: p.StreamSpecification.StreamViewType,
		Recovery:       p.PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled,
		Protected:      p.DeletionProtectionEnabled,
		OnDelete:       r.DeletionPolicy, OnReplace: r.UpdatePolicy,
		OwnName: p.TableName != nil, AccountKey: p.SSESpecification.SSEEnabled,
	}
	for _, a := range p.AttributeDefinitions {
		t.Table.AttributeTypes[a.AttributeName] = a.AttributeType
	}
	for _, i := range p.GlobalSecondaryIndexes {
		t.Table.Indexes = append(t.Table.Indexes, Index{i.IndexName, i.KeySchema.key(), i.Projection.ProjectionType})
	}
	if p.TimeToLiveSpecification.Enabled {
		t.Table.TTLAttribute = p.TimeToLiveSpecification.AttributeName
	}
	if p.LocalSecondaryIndexes != nil {
		return errors.New("local secondary indexes, which bound the size of a partition")
	}
	return nil
}

type metric struct {
	Namespace  string `yaml:"Namespace"`
	MetricName string `yaml:"MetricName"`
	Dimensions []struct {
		Name  string `yaml:"Name"`
		Value any    `yaml:"Value"`
	} `yaml:"Dimensions"`
}

func (m metric) metric() Metric {
	dimensions := make(map[string]any, len(m.Dimensions))
	for _, d := range m.Dimensions {
		dimensions[d.Name] = d.Value
	}
	return Metric{Namespace: m.Namespace, Name: m.MetricName, Dimensions: dimensions}
}

func (t *Template) addAlarm(id string, r resource) error {
	var p struct {
		AlarmDescription string `yaml:"AlarmDescription"`
		TreatMissingData string `yaml:"TreatMissingData"`
		AlarmActions     any    `yaml:"AlarmActions"`
		OKActions        any    `yaml:"OKActions"`
		Metrics          []struct {
			MetricStat *struct {
				Metric metric `yaml:"Metric"`
			} `yaml:"MetricStat"`
		} `yaml:"Metrics"`
		metric `yaml:",inline"`
	}
	if err := r.Properties.Decode(&p); err != nil {
		return err
	}
	a := Alarm{
		Description: p.AlarmDescription, TreatMissingData: p.TreatMissingData,
		Actions: p.AlarmActions, OKActions: p.OKActions,
	}
	if p.MetricName != "" {
		a.Metrics = append(a.Metrics, p.metric.metric())
	}
	for _, m := range p.Metrics {
		if m.MetricStat != nil {
			a.Metrics = append(a.Metrics, m.MetricStat.Metric.metric())
		}
	}
	t.Alarms[id] = a
	return nil
}
