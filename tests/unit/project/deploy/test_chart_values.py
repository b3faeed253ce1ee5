"""What the chart's values say of themselves agrees with their schema."""

import json
import re

from tests.support.project.charts import CHART


def test_the_comment_on_components_names_what_each_may_have() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["components"]["properties"]
    options = {name: set(each["properties"]) for name, each in schema.items()}
    shared = set.intersection(*options.values())
    comment = (CHART / "values.yaml").read_text().partition("\ncomponents:\n")[0].rpartition("\n\n")[2]
    general, *special = re.split(r"[;.] ?", comment.replace("\n#", "").replace("}, of which they use 80 %", ""))
    assert set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", general).partition(":")[2])) == shared
    for name, own in options.items():
        named = {key for clause in special for part in clause.split(", ") if name in part for key in own if key in part}
        assert named == own - shared, name
