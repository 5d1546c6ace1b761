package cost

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The only place that knows a price: change a figure there, and its date.
//
//go:embed prices.json
var priceFile []byte

// Price is what one unit of a service costs, and where the figure is from.
type Price struct {
	USD    float64 `json:"usd"`
	Unit   string  `json:"unit"`
	Source string  `json:"source"`
}

// Prices are those of one region, before taxes, discounts and free tiers that
// end.
type Prices struct {
	AsOf   string `json:"-"` // when the file was last compared with its sources, as 2006-01-02
	Region string `json:"-"`

	WAFWebACLMonth        Price `json:"waf_web_acl_month"`
	WAFRuleMonth          Price `json:"waf_rule_month"`
	WAFMillionRequests    Price `json:"waf_million_requests"`
	RESTMillionCalls      Price `json:"rest_million_calls"`
	DynamoDBMillionWrites Price `json:"dynamodb_million_writes"`
	DynamoDBMillionReads  Price `json:"dynamodb_million_reads"`
	DynamoDBGBMonth       Price `json:"dynamodb_gb_month"`
	ValkeyGBHour          Price `json:"valkey_gb_hour"`
	ValkeyMillionECPU     Price `json:"valkey_million_ecpu"`
}

// In gives the prices of a region. The error names the flag, and the regions that
// are known.
func In(region string) (Prices, error) {
	var file struct {
		AsOf    string            `json:"as_of"`
		Regions map[string]Prices `json:"regions"`
	}
	if err := json.Unmarshal(priceFile, &file); err != nil {
		return Prices{}, fmt.Errorf("the price file: %w", err)
	}
	p, ok := file.Regions[region]
	if !ok {
		known := slices.Sorted(maps.Keys(file.Regions))
		return Prices{}, fmt.Errorf("--region %s: prices are known for %s only", region, strings.Join(known, ", "))
	}
	p.AsOf, p.Region = file.AsOf, region
	return p, nil
}
