"""``daom tune``: which settings would have caught the incidents, and been quiet otherwise."""
